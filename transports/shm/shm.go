// Package shm carries bytes through the memory of one host. It is the transport
// that is always there: it needs no device, and jobs on CPUs run on it alone.
//
// Memory is a sealed memfd. A key is its descriptor with an offset, so a memory
// channel is one mapping. Port channels are driven by a loop in the transport's own
// process, which maps both sides and copies. The switch is emulated: every member
// maps the memory of all members side by side, and kernels store to each; the
// recipe has the very steps that hardware with multicast needs.
package shm

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Name is the transport's name in configuration.
const Name = "shm"

// Version of the transport.
const Version = "1.0.0"

// Transport implements framework.Transport, Proxier and Imager.
type Transport struct {
	config Config
	host   string // boot id; identifies the host where Facts.Host is empty
	images *images

	mu      sync.Mutex
	last    framework.ID
	made    map[framework.ID]any // *registration, *endpoint or *connection
	proxies map[*proxy]bool
}

// New returns a transport. It is how plugins.Serve and programs that embed the
// transport make one.
func New(c Config) (framework.Transport, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func newTransport(c Config) (*Transport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	images, err := openImages(c.Images)
	if err != nil {
		return nil, &framework.Error{Op: "open", Transport: Name, Peer: framework.NoPeer, Err: err}
	}
	return &Transport{
		config:  c,
		host:    bootID(),
		images:  images,
		made:    map[framework.ID]any{},
		proxies: map[*proxy]bool{},
	}, nil
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
		Channels: []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch},
		Signal:   framework.SignalDirect,
		Needs:    []framework.Need{framework.NeedMemFD},
		Kernels:  t.images.kernels(),
		Images:   t.images.list(),
		Proxy:    framework.ProxyPlugin,
	}, nil
}

// Close frees what was made under id. Proxies lose the slots that were bound with
// it before this returns.
func (t *Transport) Close(_ context.Context, id framework.ID) error {
	t.mu.Lock()
	made, ok := t.made[id]
	closed := map[framework.ID]bool{id: true}
	var parts []closer
	if ok {
		parts = append(parts, made.(closer))
		delete(t.made, id)
	}
	if _, endpoint := made.(*endpoint); endpoint {
		for other, m := range t.made {
			if c, ok := m.(*connection); ok && c.endpoint == id {
				closed[other] = true
				parts = append(parts, c)
				delete(t.made, other)
			}
		}
	}
	var proxies []*proxy
	for p := range t.proxies {
		proxies = append(proxies, p)
	}
	t.mu.Unlock()
	if !ok {
		return nil
	}
	for _, p := range proxies {
		p.forget(closed)
	}
	for _, c := range parts {
		c.close()
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

// find returns what id stands for. It may be closed while it is used: then its
// descriptors fail to duplicate.
func find[T closer](t *Transport, id framework.ID, what string) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.made[id].(T)
	if !ok {
		return m, fmt.Errorf("%w: id %d is no %s, or was closed", framework.ErrInvalid, id, what)
	}
	return m, nil
}

func failure(op string, peer int, err error) error {
	return &framework.Error{Op: op, Transport: Name, Peer: peer, Err: err}
}

var (
	_ framework.Transport = (*Transport)(nil)
	_ framework.Proxier   = (*Transport)(nil)
	_ framework.Imager    = (*Transport)(nil)
)
