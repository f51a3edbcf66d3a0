// Package cudaipc connects NVIDIA GPUs of one host, over NVLink or PCIe, by the
// driver's ways to share memory between processes.
//
// It returns data and nothing else: which share of a peer's memory to map, and why
// that one. It never opens a GPU: a context costs half a gigabyte of memory, and
// copies from another process wait for the rank's kernels. So memory channels are
// mappings, and port channels are driven by the rank's own copy engine, which writes
// through the very same mappings.
package cudaipc

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Name is the transport's name in configuration.
const Name = "cudaipc"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Prober and Imager.
type Transport struct {
	config   Config
	host     string   // boot id; identifies the host where Facts.Host is empty
	instance instance // tells peers whether this very object serves them as well
	images   *images
	machine  *machine
	log      *slog.Logger

	mu   sync.Mutex
	last framework.ID
	made map[framework.ID]closer
}

// instance is a number that nobody else has.
type instance [16]byte

// New returns a transport for programs that embed it. It knows of the GPUs what the
// driver tells in /proc, which leaves out who may address whose memory.
func New(c Config) (framework.Transport, error) {
	return NewWith(c, func(context.Context) ([]topo.GPU, error) { return topo.Driver(os.DirFS("/")) })
}

// NewWith returns a transport that asks find about the machine's GPUs, once, when it
// first needs to know. It is how the plugin makes one, with the driver's library.
func NewWith(c Config, find func(context.Context) ([]topo.GPU, error)) (framework.Transport, error) {
	t, err := newTransport(c, find)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func newTransport(c Config, find finder) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	images, err := openImages()
	if err != nil {
		return nil, &framework.Error{Op: "open", Transport: Name, Peer: framework.NoPeer, Err: err}
	}
	t := &Transport{
		config: c, host: bootID(), images: images, machine: newMachine(find, os.LookupEnv),
		log: slog.Default().With("transport", Name), made: map[framework.ID]closer{},
	}
	if _, err := rand.Read(t.instance[:]); err != nil {
		return nil, fmt.Errorf("%w: random numbers: %w", framework.ErrUnavailable, err)
	}
	return t, nil
}

// bootID identifies the running kernel, whatever containers and names say.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		return name
	}
	return strings.TrimSpace(string(text))
}

// Describe says what the transport can do.
func (t *Transport) Describe(context.Context) (framework.Description, error) {
	return framework.Description{
		Name:     Name,
		Version:  Version,
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.NeedVMM},
		Kernels:  t.images.kernels,
		Images:   t.images.infos,
		Proxy:    framework.ProxyRank,
		Probe:    true,
	}, nil
}

// Close frees what was made under id; with an endpoint, its connections.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	var parts []closer
	made, ok := t.made[id]
	if ok {
		parts = append(parts, made)
		delete(t.made, id)
	}
	if _, endpoint := made.(*endpoint); endpoint {
		for other, m := range t.made {
			if c, ok := m.(*connection); ok && c.endpoint == id {
				parts = append(parts, c)
				delete(t.made, other)
			}
		}
	}
	t.mu.Unlock()
	for _, p := range parts {
		p.close()
	}
	return nil
}

// closer is what ids stand for.
type closer interface{ close() }

// keep gives a thing its id.
func (t *Transport) keep(m closer) framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.made[t.last] = m
	return t.last
}

// find returns what id stands for.
func find[T closer](t *Transport, id framework.ID, what string) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.made[id].(T)
	if !ok {
		return m, fmt.Errorf("%w: id %d is no %s, or was closed", framework.ErrInvalid, id, what)
	}
	return m, nil
}

// failure says which operation failed, and names the peer that the error blames.
func failure(op string, err error) error {
	peer := framework.PeerOf(err)
	if blame, ok := err.(*framework.Error); ok && blame.Op == "" {
		err = blame.Err // the peer is said once
	}
	return &framework.Error{Op: op, Transport: Name, Peer: peer, Err: err}
}

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Prober    = (*Transport)(nil)
	_ framework.Imager    = (*Transport)(nil)
)
