// Package memory is local memory that takes part in channels, and what transports know it
// as.
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is local memory that can take part in channels. It is registered with a
// transport when a link of that transport first needs it.
//
// Its methods are those of users: the other parts of the communicator use the functions of this
// package.
type Memory struct {
	device.Memory
	lifetime life.Lifetime
	users    life.Users // the channels and windows that are built on it
	owned    bool       // Close frees the memory itself

	mu   sync.Mutex
	regs map[*transport.Transport]framework.Registration
}

// New wraps memory of a device; owned memory is freed at the end. It has no owner
// until Begin.
func New(inner device.Memory, owned bool) *Memory {
	m := &Memory{Memory: inner, owned: owned}
	m.lifetime.Release(m.release)
	return m
}

// Begin makes the memory part of a communicator.
func Begin(m *Memory, owner *life.Life) error {
	return m.lifetime.Begin(&owner.Parts, m, m.release)
}

// Shut ends memory as Close does, within a context.
func Shut(ctx context.Context, m *Memory) error { return m.lifetime.Shut(ctx) }

// Users are the lifetimes that end with the memory.
func Users(m *Memory) *life.Users { return &m.users }

// Usable says why memory cannot be used any more, or nil.
func Usable(m *Memory) error {
	if m == nil || m.Memory == nil {
		return fmt.Errorf("%w: no memory was given", framework.ErrInvalid)
	}
	return m.users.Err()
}

// Registration returns what transport t knows the memory as.
func Registration(ctx context.Context, m *Memory, t *transport.Transport, dev framework.Device) (framework.Registration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.users.Err(); err != nil {
		return framework.Registration{}, err
	}
	if r, ok := m.regs[t]; ok {
		return r, nil
	}
	shares, err := m.Export()
	if err != nil {
		return framework.Registration{}, err
	}
	lacks := m.addDMABuf(t, &shares)
	defer framework.Parcel{Shares: shares}.Close()
	r, err := t.Register(ctx, framework.Segment{
		Device: dev, Shares: shares, Bytes: m.Bytes(), Addr: uint64(m.Addr()),
	})
	if err == nil && r.ID == 0 {
		r.Key.Close()
		err = fmt.Errorf("%w: %s answers with registration 0", framework.ErrPlugin, t.Name)
	}
	if err != nil {
		return framework.Registration{}, errors.Join(err, lacks)
	}
	if m.regs == nil {
		m.regs = make(map[*transport.Transport]framework.Registration)
	}
	m.regs[t] = r
	return r, nil
}

// addDMABuf adds the share by which adapters reach memory of a device, for transports
// that take it. The error says why there is none; they may take another.
func (m *Memory) addDMABuf(t *transport.Transport, shares *[]framework.Share) error {
	d, ok := m.Memory.(device.DMABufMemory)
	if !ok || !slices.Contains(t.Description.Needs, framework.NeedDMABuf) ||
		slices.ContainsFunc(*shares, func(s framework.Share) bool { return s.Kind == framework.ShareDMABuf }) {
		return nil
	}
	s, err := d.DMABuf()
	if err == nil {
		*shares = append(*shares, s)
	}
	return err
}

// Close closes what was built on the memory, withdraws it from all transports and frees
// it. Peers that have mapped it keep it until they close their side. No kernel of this
// rank may use the memory any more.
func (m *Memory) Close() error { return m.lifetime.Close() }

func (m *Memory) release(ctx context.Context) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	// An exchange must not find it any more: the next allocation may get the same address.
	keep(m.users.Shut(ctx))
	m.mu.Lock()
	defer m.mu.Unlock()
	keep(m.withdraw(ctx))
	if m.owned {
		keep(m.Memory.Close())
	}
	return first
}

// withdraw closes the registrations. A plugin that is gone has closed them.
func (m *Memory) withdraw(ctx context.Context) error {
	var first error
	for t, r := range m.regs {
		err := t.Close(ctx, r.ID)
		if cerr := r.Key.Close(); err == nil {
			err = cerr
		}
		if err != nil && !errors.Is(err, framework.ErrPlugin) && first == nil {
			first = fmt.Errorf("close registration with %s: %w", t.Name, err)
		}
		delete(m.regs, t)
	}
	return first
}

var _ device.Memory = (*Memory)(nil)
