package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// within registers a range that begins at an offset in memory of its own.
func (p *player) within(offset, bytes uint64) (*comm.Memory, error) {
	all, err := p.Alloc(offset + bytes)
	if err != nil {
		return nil, err
	}
	inner, err := p.dev.Wrap(all.Addr()+uintptr(offset), bytes)
	if err != nil {
		return nil, err
	}
	return p.Register(inner)
}

// Every rank finds the memory of all at one stride, whatever sizes they have and wherever it begins, and writes there.
func TestArrange(t *testing.T) {
	const n, size, part = 3, 1 << 16, 1 << 10
	cudaJob(t, n, func(ctx context.Context, p *player) error {
		me := p.Rank()
		m, err := p.within(uint64(me)<<21+4096, size*uint64(me+1))
		if err != nil {
			return err
		}
		s, err := comm.Arrange(ctx, p.Communicator, m, false)
		if err != nil {
			return err
		}
		base, stride := s.Flat()
		if stride == 0 || stride%(4<<30) != 0 {
			return fmt.Errorf("the stride is %d", stride)
		}
		for r := range n {
			at := base + uintptr(r)*uintptr(stride)
			if s.Peer(r) != at || s.Bytes(r) != size*uint64(r+1) {
				return fmt.Errorf("rank %d is at %#x with %d bytes: expected %#x", r, s.Peer(r), s.Bytes(r), at)
			}
			if err := p.write(ctx, at+uintptr(me*part), []byte(strings.Repeat(string(rune('a'+me)), part))); err != nil {
				return err
			}
		}
		if err := p.Barrier(ctx); err != nil {
			return err
		}
		for _, at := range []uintptr{m.Addr(), s.Peer(me)} { // its own memory is in both places
			got, err := p.read(ctx, at, n*part)
			if err != nil {
				return err
			}
			for r := range n {
				if strings.Trim(string(got[r*part:(r+1)*part]), string(rune('a'+r))) != "" {
					return fmt.Errorf("at %#x: rank %d's part is %q", at, r, got[r*part:r*part+8])
				}
			}
		}
		if found, offset, ok := p.Find(m.Addr()+8, size-8); !ok || found != s || offset != 8 {
			return fmt.Errorf("found %v at %d, %v", found, offset, ok)
		}
		if _, _, ok := p.Find(m.Addr(), size+1); ok {
			return errors.New("collectives are given more than the smallest part has")
		}
		if err := p.Barrier(ctx); err != nil {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
		if isEmulated() && p.dev.WriteAt([]byte{1}, base) == nil {
			return errors.New("the addresses are still mapped")
		}
		_, _, ok := p.Find(m.Addr(), 8)
		if ok {
			return errors.New("it is still found")
		}
		return nil
	})
}

// A rank that cannot take part keeps all from it, and the communicator works.
func TestArrangeRefused(t *testing.T) {
	const n = 3
	cudaJob(t, n, func(ctx context.Context, p *player) error {
		good, err := p.within(4096, 4096)
		if err != nil {
			return err
		}
		shifted, err := p.within(4096*uint64(p.Rank()+1), 4096)
		if err != nil {
			return err
		}
		host, err := p.dev.AllocHost(4096)
		if err != nil {
			return err
		}
		pinned, err := p.Register(host)
		if err != nil {
			return err
		}
		for _, c := range []struct {
			text string
			bad  *comm.Memory
			by   int // the rank that has it, -1: all
		}{
			{"no memory was given", nil, 1},
			{"expected memory behind a handle", pinned, 2},
			{"into its allocation", shifted, -1},
		} {
			m := good
			if c.by < 0 || c.by == p.Rank() {
				m = c.bad
			}
			if _, err := comm.Arrange(ctx, p.Communicator, m, false); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), c.text) {
				return fmt.Errorf("%v: expected %q", err, c.text)
			}
		}
		s, err := comm.Arrange(ctx, p.Communicator, good, true)
		if err != nil {
			return err
		}
		if _, _, ok := p.Find(good.Addr(), 8); ok {
			return errors.New("private memory is found")
		}
		return errors.Join(s.Close(), pinned.Close(), host.Close())
	})
}

// unattached attaches nothing while now is set.
type unattached struct {
	framework.Transport
	now *atomic.Bool
}

func (u unattached) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	if u.now != nil && u.now.Load() {
		return framework.Attachment{}, fmt.Errorf("%w: nothing is attached now", framework.ErrUnavailable)
	}
	return u.Transport.Attach(ctx, conn, local, keys)
}

// A mapping that fails on one rank, when the others have theirs, is undone on all.
func TestArrangeUndone(t *testing.T) {
	var made atomic.Int32
	var now atomic.Bool
	over := func() framework.Transport {
		u := unattached{Transport: loopback.NewByRank()}
		if made.Add(1) == 1 { // of one rank, whichever it is
			u.now = &now
		}
		return u
	}
	cudaJobOver(t, 3, over, func(ctx context.Context, p *player) error {
		m, err := p.within(0, 4096)
		if err != nil {
			return err
		}
		if _, err := p.ReachAll(ctx); err != nil {
			return err
		}
		now.Store(true)
		if _, err := comm.Arrange(ctx, p.Communicator, m, false); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "nothing is attached now") {
			return fmt.Errorf("%v: expected why one rank cannot", err)
		}
		if err := p.Barrier(ctx); err != nil {
			return err
		}
		now.Store(false)
		s, err := comm.Arrange(ctx, p.Communicator, m, false)
		if err != nil {
			return err
		}
		return errors.Join(p.Barrier(ctx), s.Close())
	})
}
