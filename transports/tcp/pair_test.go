package tcp

import (
	"context"
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// pair is a port channel from rank 0 to rank 1 without any communicator: a test
// writes down what package comm does.
type pair struct {
	t        testing.TB
	ends     [2]framework.Transport
	listens  [2]framework.Endpoint
	conn     framework.ID
	src, dst *memfd.Memory // the first word of dst is the semaphore
	key      framework.Parcel
	regs     [2]framework.ID
	proxy    framework.Proxy
	ring     *ring.Ring
}

const limit = 4 * time.Minute

func (p *pair) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) register(side int, m *memfd.Memory) framework.Registration {
	p.t.Helper()
	r, err := p.ends[side].Register(p.t.Context(), framework.Segment{
		Device: framework.Host, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: m.File()}}, Bytes: m.Len(),
	})
	p.check(err)
	p.regs[side] = r.ID
	return r
}

// linked makes two transports that are connected, and memory; there is no proxy yet.
func linked(t testing.TB, bytes uint64, ends [2]framework.Transport) *pair {
	t.Helper()
	p := &pair{t: t, ends: ends}
	for i := range ends {
		var err error
		p.listens[i], err = ends[i].Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort, Rank: i, Ranks: []int{0, 1}, Device: framework.Host})
		p.check(err)
		m, err := memfd.New("tcp-test", bytes, memfd.Options{})
		p.check(err)
		t.Cleanup(func() { m.Close() })
		if i == 0 {
			p.src = m
		} else {
			p.dst = m
		}
	}
	var err error
	p.conn, err = ends[0].Connect(t.Context(), p.listens[0].ID, []framework.Peer{{Rank: 1, Address: p.listens[1].Address}})
	p.check(err)
	p.key = p.register(1, p.dst).Key
	return p
}

// open starts a proxy.
func (p *pair) open(slots int) *pair {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	own := p.register(0, p.src)
	var err error
	p.proxy, err = p.ends[0].(framework.Proxier).NewProxy(ctx)
	p.check(err)
	p.check(p.proxy.BindMemory(ctx, 0, framework.MemoryBinding{Local: own.ID}))
	p.check(p.proxy.BindMemory(ctx, 1, framework.MemoryBinding{Conn: p.conn, Key: p.key}))
	p.check(p.proxy.BindSemaphore(ctx, 0, framework.SemaphoreBinding{Conn: p.conn, Key: p.key}))
	p.ring, err = ring.New(slots)
	p.check(err)
	share, err := p.ring.Share()
	p.check(err)
	defer share.Close()
	p.check(p.proxy.Start(ctx, share))
	p.t.Cleanup(p.stop)
	return p
}

func (p *pair) stop() {
	if p.proxy == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = p.proxy.Stop(ctx)
	_ = p.ring.Close()
	p.proxy = nil
}

// release closes both sides.
func (p *pair) release() {
	p.stop()
	for i, tr := range p.ends {
		p.check(tr.Close(context.Background(), p.listens[i].ID))
		p.check(tr.Close(context.Background(), p.regs[i]))
	}
}

func two(t testing.TB, change func(c *Config)) (ends [2]framework.Transport) {
	t.Helper()
	c := Config{}.Defaults()
	if change != nil {
		change(&c)
	}
	for i := range ends {
		var err error
		if ends[i], err = New(c); err != nil {
			t.Fatal(err)
		}
	}
	return ends
}

func (p *pair) push(kind, dst, src, bytes uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	return p.ring.PushContext(ctx, kernel.TriggerFields{Kind: kind, Bytes: bytes, From: src, To: dst, Dst: 1}.Pack())
}

// flush waits for all that was pushed.
func (p *pair) flush() error {
	pos, err := p.push(kernel.TriggerFlush, 0, 0, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	return p.ring.WaitFlushed(ctx, 0, pos)
}

func (p *pair) count() uint64 { return atomic.LoadUint64((*uint64)(p.dst.Addr())) }

func (p *pair) died() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	return p.proxy.Wait(ctx)
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

const (
	putSignal = kernel.TriggerData | kernel.TriggerSignal
	header    = 4096 // room for the semaphore
)

func words(m *memfd.Memory) []uint64 {
	return unsafe.Slice((*uint64)(m.Addr()), m.Len()/8)
}

// Puts over several streams overlap each other and small ones: what is seen after a
// signal is what came last.
func TestStripesInOrder(t *testing.T) {
	const bytes = 1 << 20
	ends := two(t, func(c *Config) { c.Streams, c.Stripe = 4, 16<<10 })
	p := linked(t, header+bytes, ends).open(64)
	src := p.src.Bytes()
	for round := range uint64(60) {
		for i := range words(p.src) {
			words(p.src)[i] = round<<32 | uint64(i)
		}
		offset := round % 7 * 8 // stripes of neighbors end at different places
		for _, x := range [][3]uint64{
			{header, header, bytes},
			{header + offset, header, bytes - offset},
			{header + bytes/2, header + 8, 8},
			{header, header, bytes},
			{header + bytes - 16, header + 16, 16},
		} {
			if _, err := p.push(kernel.TriggerData, x[0], x[1], x[2]); err != nil {
				t.Fatal(err, p.died())
			}
		}
		if _, err := p.push(kernel.TriggerSignal, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		until(t, "signal", func() bool { return p.count() == round+1 })
		got := p.dst.Bytes()
		for at := uint64(header); at < header+bytes; at += 8 {
			from := at
			if at >= header+bytes-16 {
				from = at - bytes + 32
			}
			if have, want := binary.LittleEndian.Uint64(got[at:]), binary.LittleEndian.Uint64(src[from:]); have != want {
				t.Fatalf("round %d: word at %d is %#x, want %#x", round, at, have, want)
			}
		}
	}
	p.check(p.flush())
	p.release()
}

// The data path allocates nothing once its buffers have grown.
func TestNoAllocations(t *testing.T) {
	p := linked(t, header+(4<<20), two(t, nil)).open(256)
	run := func(size uint64) func() {
		return func() {
			for range 16 {
				if _, err := p.push(putSignal, header, header, size); err != nil {
					t.Fatal(err)
				}
			}
			p.check(p.flush())
		}
	}
	for _, size := range []uint64{64, 64 << 10, 4 << 20} {
		run(size)()
		// The contexts of push and flush are the test's own.
		own := testing.AllocsPerRun(20, func() {
			for range 18 {
				_, cancel := context.WithTimeout(t.Context(), limit)
				cancel()
			}
		})
		// The runtime allocates too, for timers and threads, more on a busy machine: what each run does is in the least.
		least := math.Inf(1)
		for n := 0; n < 3 || least > 1 && n < 50; n++ {
			least = min(least, testing.AllocsPerRun(7, run(size))-own)
		}
		if least > 1 {
			t.Errorf("%v allocations in 16 puts of %d bytes", least, size)
		}
	}
}
