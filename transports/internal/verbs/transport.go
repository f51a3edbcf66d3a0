package verbs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
)

// Mode is how a transport signals.
type Mode uint8

// Modes.
const (
	Atomic    Mode = 1 // the peer's adapter adds to the counter
	Immediate Mode = 2 // the peer's plugin counts immediates
)

// Setup says which transport it is.
type Setup struct {
	Name    string
	Version string
	Mode    Mode
}

// Transport implements framework.Transport, Prober and Proxier.
type Transport struct {
	setup  Setup
	config Config

	mu       sync.RWMutex
	lib      *library
	dev      *adapter // open while something uses it
	users    int
	receiver atomic.Pointer[receiver] // of dev; nil where signals are atomics
	last     framework.ID
	made     map[framework.ID]thing
	proxies  map[*proxy]bool
}

// thing is what ids stand for.
type thing interface{ close() }

// New returns a transport. It touches no device.
func New(s Setup, c Config) (framework.Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, &framework.Error{Op: "open", Transport: s.Name, Peer: framework.NoPeer, Err: err}
	}
	return &Transport{setup: s, config: c, made: map[framework.ID]thing{}, proxies: map[*proxy]bool{}}, nil
}

// Describe says what the transport can do.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	d := framework.Description{
		Name:     t.setup.Name,
		Version:  t.setup.Version,
		Channels: []framework.Kind{framework.KindPort},
		Signal:   framework.SignalAtomic,
		Needs:    []framework.Need{framework.NeedMemFD},
		Proxy:    framework.ProxyPlugin,
		Probe:    true,
		Links:    t.config.QueuePairs,
	}
	if t.config.GPUDirect {
		d.Needs = append(d.Needs, framework.NeedDMABuf)
	}
	if t.setup.Mode == Immediate {
		d.Signal = framework.SignalImmediate
	}
	return d, nil
}

// Probe looks for a device that can be used.
func (t *Transport) Probe(ctx context.Context, facts framework.Facts) (framework.Live, error) {
	if err := ctx.Err(); err != nil {
		return framework.Live{}, t.failure("probe", err)
	}
	d, err := t.acquire(facts.NICs)
	if err != nil {
		return framework.Live{Reason: err.Error()}, nil
	}
	defer t.release()
	atomics := "none"
	if d.atomics() {
		atomics = "adapter"
	}
	return framework.Live{Available: true, Facts: map[string]string{
		"device":  d.name,
		"port":    fmt.Sprint(d.port),
		"gid":     fmt.Sprintf("%x at %d", d.gid, d.gidIndex),
		"mtu":     fmt.Sprint(128 << d.portAttr.mtu),
		"atomics": atomics,
		"fabric":  d.fabric(t.config),
	}}, nil
}

// acquire opens the device for one more user. Who is first, decides which it is.
func (t *Transport) acquire(nics []framework.NIC) (*adapter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dev == nil {
		if t.lib == nil {
			lib, err := load(t.config.Library)
			if err != nil {
				return nil, err
			}
			t.lib = lib
		}
		d, err := choose(t.lib, t.config, t.setup.Mode, nics, deviceOf)
		if err != nil {
			return nil, err
		}
		t.dev = d
		if t.setup.Mode == Immediate {
			t.receiver.Store(newReceiver(t, d))
		}
	}
	t.users++
	return t.dev, nil
}

// release closes it after the last one.
func (t *Transport) release() {
	t.mu.Lock()
	t.users--
	if t.users > 0 {
		t.mu.Unlock()
		return
	}
	d, r := t.dev, t.receiver.Swap(nil)
	t.dev = nil
	t.mu.Unlock()
	if r != nil {
		r.stop()
	}
	d.close()
}

// Close frees what was made under id. Proxies lose the slots that were bound with it, and
// what they have under way from that memory is waited for.
func (t *Transport) Close(ctx context.Context, id framework.ID) error {
	t.mu.Lock()
	x, ok := t.made[id]
	delete(t.made, id)
	closed := map[framework.ID]bool{id: true}
	things := []thing{x}
	if e, endpoint := x.(*endpoint); endpoint {
		for other, m := range t.made {
			if c, is := m.(*connection); is && c.endpoint == e {
				closed[other] = true
				things = []thing{c, e}
				delete(t.made, other)
			}
		}
	}
	proxies := make([]*proxy, 0, len(t.proxies))
	for p := range t.proxies {
		proxies = append(proxies, p)
	}
	t.mu.Unlock()
	if !ok {
		return nil
	}
	_, memory := x.(*registration)
	for _, p := range proxies {
		p.forget(ctx, closed, memory)
	}
	for _, x := range things {
		x.close()
	}
	return nil
}

// keep gives a thing its id.
func (t *Transport) keep(x thing) framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.made[t.last] = x
	return t.last
}

// find returns what id stands for.
func find[T thing](t *Transport, id framework.ID, what string) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	x, ok := t.made[id].(T)
	if !ok {
		return x, fmt.Errorf("%w: id %d is no %s, or was closed", framework.ErrInvalid, id, what)
	}
	return x, nil
}

// failure names operation and peer, once.
func (t *Transport) failure(op string, err error) error {
	return fault.In(t.setup.Name, op, err)
}

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Prober    = (*Transport)(nil)
	_ framework.Proxier   = (*Transport)(nil)
)
