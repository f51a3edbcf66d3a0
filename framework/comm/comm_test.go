package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

func words(addr uintptr) *[8]uint64 { return *(**[8]uint64)(unsafe.Pointer(&addr)) }

func TestExchangeMakesEveryRankAddressable(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			job(t, n, func(ctx context.Context, c *comm.Communicator) error {
				m, err := c.Alloc(4096 * uint64(c.Rank()+1))
				if err != nil {
					return err
				}
				defer m.Close()
				s, err := c.Exchange(ctx, m)
				if err != nil {
					return err
				}
				for r := range n {
					atomic.StoreUint64(&words(s.Peer(r))[c.Rank()%8], uint64(100+c.Rank()))
					if want := 4096 * uint64(r+1); s.Bytes(r) != want {
						return fmt.Errorf("part of rank %d has %d bytes, expected %d", r, s.Bytes(r), want)
					}
				}
				if err := c.Barrier(ctx); err != nil {
					return err
				}
				for r := range n {
					if got := atomic.LoadUint64(&words(m.Addr())[r%8]); got != uint64(100+r) {
						return fmt.Errorf("word of rank %d is %d", r, got)
					}
				}
				return s.Close()
			})
		})
	}
}

// Exchanged lists the own parts by address. OnExchange reports each change, and Exchanges counts them.
func TestExchangedIsListed(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		changes, before := 0, c.Exchanges()
		c.OnExchange(func() { changes++ })
		var all []*comm.Symmetric
		for range 2 {
			s, err := exchanged(ctx, c, 4096)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		first, ok1 := c.Exchanged(0)
		second, ok2 := c.Exchanged(1)
		if _, more := c.Exchanged(2); !ok1 || !ok2 || more || first.Addr() >= second.Addr() {
			return fmt.Errorf("%v %v, %v %v, and more: %v: expected two, in order", first, ok1, second, ok2, more)
		}
		all[0].Retire()
		if err := all[0].Close(); err != nil { // Find has not returned it since
			return err
		}
		if _, more := c.Exchanged(1); more || changes != 3 || c.Exchanges()-before != 3 {
			return fmt.Errorf("%d changes, %d counted, more than one left: %v: expected 3, and one", changes, c.Exchanges()-before, more)
		}
		return nil
	})
}

func TestFindLocatesExchangedMemory(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		var all []*comm.Symmetric
		for range 3 {
			m, err := c.Alloc(8192)
			if err != nil {
				return err
			}
			defer m.Close()
			s, err := c.Exchange(ctx, m)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		for i, s := range all {
			got, offset, ok := c.Find(s.Own().Addr()+100, 8092)
			if !ok || got != s || offset != 100 {
				return fmt.Errorf("buffer %d: found %v at %d (%v)", i, got, offset, ok)
			}
			if _, _, ok := c.Find(s.Own().Addr()+100, 8093); ok {
				return fmt.Errorf("buffer %d: a range beyond its end was found", i)
			}
		}
		if n := testing.AllocsPerRun(100, func() { c.Find(all[1].Own().Addr(), 1) }); n != 0 {
			return fmt.Errorf("Find allocates %v times", n)
		}
		return all[0].Close()
	})
}

func TestMemoryChannelsSignal(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		s, err := c.Exchange(ctx, m)
		if err != nil {
			return err
		}
		channels, err := c.MemoryChannels(ctx, s)
		if err != nil {
			return err
		}
		for r, ch := range channels {
			if r == c.Rank() {
				if ch.Dst != 0 {
					return fmt.Errorf("own slot is not zero")
				}
				continue
			}
			if ch.Dst != s.Peer(r) || ch.Src != m.Addr() || int(ch.Semaphore.Peer) != r {
				return fmt.Errorf("handle of rank %d: %+v", r, ch)
			}
			atomic.AddUint64(&words(ch.Semaphore.Outbound)[0], uint64(1+c.Rank()))
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		for r, ch := range channels {
			if r == c.Rank() {
				continue
			}
			if got := atomic.LoadUint64(&words(ch.Semaphore.Inbound)[0]); got != uint64(1+r) {
				return fmt.Errorf("semaphore of rank %d counts %d, expected %d", r, got, 1+r)
			}
		}
		return nil
	})
}

func TestPortChannelHostDriven(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		peer := 1 - c.Rank()
		m, err := c.Alloc(1 << 16)
		if err != nil {
			return err
		}
		defer m.Close()
		ch, err := c.PortChannel(ctx, peer, m, m)
		if err != nil {
			return err
		}
		defer ch.Close()
		data := device.Bytes(m.Memory)
		for lap := range 1200 { // several laps of the ring
			if c.Rank() == 0 {
				copy(data, fmt.Sprintf("lap %06d", lap))
				if err := ch.PutWithSignal(4096, 0, 10); err != nil {
					return err
				}
				if err := ch.Wait(ctx); err != nil {
					return err
				}
				continue
			}
			if err := ch.Wait(ctx); err != nil {
				return err
			}
			if got, want := string(data[4096:4106]), fmt.Sprintf("lap %06d", lap); got != want {
				return fmt.Errorf("got %q, expected %q", got, want)
			}
			if err := ch.Signal(); err != nil {
				return err
			}
		}
		if err := ch.Put(0, 0, 1<<16); err != nil {
			return err
		}
		if err := ch.Flush(ctx); err != nil {
			return err
		}
		for _, bad := range [][3]uint64{{0, 1, 1 << 16}, {1, 0, 1 << 16}, {1 << 40, 0, 1}, {0, 0, 1 << 33}} {
			if err := ch.Put(bad[0], bad[1], bad[2]); !errors.Is(err, framework.ErrInvalid) {
				return fmt.Errorf("Put%v = %v, expected ErrInvalid", bad, err)
			}
		}
		return c.Barrier(ctx)
	})
}

func TestSwitchChannelReachesAll(t *testing.T) {
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(8192)
		if err != nil {
			return err
		}
		defer m.Close()
		ch, err := c.SwitchChannel(ctx, m)
		if err != nil {
			return err
		}
		defer ch.Close()
		h := ch.Handle()
		if h.Bytes != 8192-128 || h.Ranks != 3 || h.Stride == 0 {
			return fmt.Errorf("handle %+v", h)
		}
		for r := range 3 {
			copyOfRank := h.Window + uintptr(uint64(r)*h.Stride)
			atomic.StoreUint64(&words(copyOfRank)[c.Rank()], uint64(7+c.Rank()))
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		for r := range 3 {
			if got := atomic.LoadUint64(&words(m.Addr())[r]); got != uint64(7+r) {
				return fmt.Errorf("word of rank %d is %d", r, got)
			}
		}
		return nil
	})
}

func TestSplitByColorAndKey(t *testing.T) {
	job(t, 5, func(ctx context.Context, c *comm.Communicator) error {
		color := c.Rank() % 2
		if c.Rank() == 4 {
			color = -1
		}
		sub, err := c.Split(ctx, color, -c.Rank())
		if err != nil {
			return err
		}
		if color < 0 {
			if sub != nil {
				return errors.New("a negative color got a communicator")
			}
			return nil
		}
		defer sub.Close()
		if want := map[int]int{0: 1, 1: 1, 2: 0, 3: 0}[c.Rank()]; sub.Rank() != want || sub.Size() != 2 {
			return fmt.Errorf("rank %d of %d, expected %d of 2", sub.Rank(), sub.Size(), want)
		}
		if got := sub.JobRank(1 - sub.Rank()); got != 2-c.Rank()+2*color {
			return fmt.Errorf("the other rank of the group has number %d in the job", got)
		}
		below, err := sub.Split(ctx, sub.Rank(), 0)
		if err != nil {
			return err
		}
		defer below.Close()
		if got := below.JobRank(0); got != c.Rank() {
			return fmt.Errorf("the only rank of a group of a group has number %d in the job", got)
		}
		all, err := sub.AllGather(ctx, []byte{byte(c.Rank())})
		if err != nil {
			return err
		}
		if got := [2]byte{all[0][0], all[1][0]}; got != [2]byte{byte(color + 2), byte(color)} {
			return fmt.Errorf("group is %v", got)
		}
		m, err := sub.Alloc(4096)
		if err != nil {
			return err
		}
		defer m.Close()
		_, err = sub.Exchange(ctx, m)
		return err
	})
}

func TestAbortEndsTheOthersWithTheCause(t *testing.T) {
	cause := errors.New("the loss is not a number")
	var joined sync.WaitGroup
	joined.Add(3)
	job(t, 3, func(ctx context.Context, c *comm.Communicator) error {
		joined.Done()
		joined.Wait() // a rank that still greets the others ends with the cause as well
		if c.Rank() == 1 {
			c.Abort(cause)
			if !errors.Is(c.Err(), cause) {
				return fmt.Errorf("own error is %v", c.Err())
			}
			return nil
		}
		select {
		case <-c.Done():
		case <-ctx.Done():
			return errors.New("the abort of rank 1 did not arrive")
		}
		if err := c.Check(); !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 {
			return fmt.Errorf("error %v: expected ErrPeer that names rank 1", err)
		}
		if atomic.LoadUint32(&c.ControlWords().Abort) == 0 {
			return errors.New("kernels were not told")
		}
		if _, err := c.Alloc(1); !errors.Is(err, framework.ErrPeer) {
			return fmt.Errorf("Alloc after an abort: %v", err)
		}
		return nil
	})
}

func TestUseAfterClose(t *testing.T) {
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
		if _, err := c.Exchange(ctx, m); !errors.Is(err, framework.ErrClosed) {
			return fmt.Errorf("exchange of freed memory: %v, expected ErrClosed", err)
		}
		if err := c.Close(); err != nil {
			return err
		}
		if err := c.Barrier(ctx); !errors.Is(err, framework.ErrClosed) {
			return fmt.Errorf("barrier after close: %v, expected ErrClosed", err)
		}
		return nil
	})
}
