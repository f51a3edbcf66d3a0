package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Memory is local memory that can take part in channels. It is registered with a
// transport when a link of that transport first needs it.
type Memory struct {
	device.Memory
	lifetime
	owned bool // Close frees the memory itself

	mu     sync.Mutex
	regs   map[*Transport]framework.Registration
	users  map[part]struct{} // what is built on it
	closed bool
}

// Alloc returns zeroed device memory that peers can be given access to. It is freed by
// its Close, or by that of the communicator.
func (c *Communicator) Alloc(bytes uint64) (*Memory, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, fmt.Errorf("%w: comm %s: allocation of 0 bytes", framework.ErrInvalid, c.opts.Name)
	}
	inner, err := c.dev.Alloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("comm %s: %w", c.opts.Name, err)
	}
	m := &Memory{Memory: inner, owned: true}
	if err := m.begin(c, m); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return m, nil
}

// Register offers memory that the device allocated elsewhere. Closing the result does
// not free the memory. It has to be closed before the memory is freed.
func (c *Communicator) Register(inner device.Memory) (*Memory, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if inner == nil {
		return nil, fmt.Errorf("%w: comm %s: register: no memory", framework.ErrInvalid, c.opts.Name)
	}
	m := &Memory{Memory: inner}
	if err := m.begin(c, m); err != nil {
		return nil, err
	}
	return m, nil
}

// usable says why memory cannot be used any more, or nil.
func (m *Memory) usable() error {
	if m == nil || m.Memory == nil {
		return fmt.Errorf("%w: no memory was given", framework.ErrInvalid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("%w: memory was freed", framework.ErrClosed)
	}
	return nil
}

// use makes the end of the memory that of p as well.
func (m *Memory) use(p part) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("%w: memory was freed", framework.ErrClosed)
	}
	if m.users == nil {
		m.users = make(map[part]struct{})
	}
	m.users[p] = struct{}{}
	return nil
}

func (m *Memory) unuse(p part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.users, p)
}

// registration returns what transport t knows the memory as.
func (m *Memory) registration(ctx context.Context, t *Transport, dev framework.Device) (framework.Registration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return framework.Registration{}, fmt.Errorf("%w: memory was freed", framework.ErrClosed)
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
		m.regs = make(map[*Transport]framework.Registration)
	}
	m.regs[t] = r
	return r, nil
}

// addDMABuf adds the share by which adapters reach memory of a device, for transports
// that take it. The error says why there is none; they may take another.
func (m *Memory) addDMABuf(t *Transport, shares *[]framework.Share) error {
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
func (m *Memory) Close() error { return m.shutNow(m) }

func (m *Memory) shut(ctx context.Context) error {
	return m.end(m, func() error {
		m.mu.Lock()
		m.closed = true
		users := make([]part, 0, len(m.users))
		for p := range m.users {
			users = append(users, p)
		}
		m.mu.Unlock()
		var first error
		keep := func(err error) {
			if err != nil && first == nil {
				first = err
			}
		}
		// What is exchanged must not be found any more: the next allocation may
		// get the same address.
		for _, p := range users {
			keep(p.shut(ctx))
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		keep(m.withdraw(ctx))
		if m.owned {
			keep(m.Memory.Close())
		}
		return first
	})
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
