package verbs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

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

	mu       sync.Mutex
	lib      *library
	dev      *adapter // open while something uses it
	users    int
	nics     []framework.NIC          // the last ones from facts: memory is registered without
	receiver atomic.Pointer[receiver] // of dev; nil where signals are atomics

	objects ids.Table[object]
}

// object is an object behind an id.
type object interface{ close() }

// New returns a transport. It touches no device.
func New(s Setup, c Config) (framework.Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, &framework.Error{Op: "open", Transport: s.Name, Peer: framework.NoPeer, Err: err}
	}
	return &Transport{setup: s, config: c}, nil
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
	direct := "none"
	if d.direct != nil {
		direct = d.direct.sysfs
	}
	found := map[string]string{
		"device":  d.name,
		"port":    fmt.Sprint(d.port),
		"gid":     fmt.Sprintf("%x at %d", d.gid, d.gidIndex),
		"mtu":     fmt.Sprint(128 << d.portAttr.mtu),
		"atomics": atomics,
		"fabric":  d.fabric(t.config),

		"data_direct": direct,
	}
	if i := slices.IndexFunc(facts.NICs, func(n framework.NIC) bool { return n.Name == d.name }); i >= 0 {
		found["distance"] = facts.NICs[i].Distance // from the rank's device: why it is this one
	}
	return framework.Live{Available: true, Facts: found}, nil
}

// acquire opens the device for one more user. The first user decides which it is. A user
// without facts about adapters takes those of the one before.
func (t *Transport) acquire(nics []framework.NIC) (*adapter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(nics) > 0 {
		t.nics = slices.Clone(nics)
	}
	if t.dev == nil {
		if t.lib == nil {
			lib, err := load(t.config.Library)
			if err != nil {
				return nil, err
			}
			t.lib = lib
		}
		d, err := choose(t.lib, t.config, t.setup.Mode, t.nics, deviceOf)
		if err != nil {
			return nil, err
		}
		t.dev = d
		// Only where signals are atomics, which take the same path as the data. An immediate
		// comes by the other one, and could overtake it.
		if t.setup.Mode == Atomic && t.config.GPUDirect && t.config.DataDirect {
			d.direct = d.findDirect(t.config.MLX5Library)
		}
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

// Close frees the object made under id. Proxies lose the slots that were bound with it, and
// what they have under way from that memory is waited for, within a bound of its own.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.objects.Close(id, object.close)
	return nil
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
