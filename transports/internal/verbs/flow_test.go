package verbs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// connected links rank 0 of a with rank 1 of b, and returns a's connection.
func connected(t testing.TB, a, b *Transport) framework.ID {
	t.Helper()
	ctx := context.Background()
	ea, err := a.Listen(ctx, linkConfig(0))
	if err != nil {
		t.Fatal(err)
	}
	eb, err := b.Listen(ctx, linkConfig(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(ctx, ea.ID); _ = b.Close(ctx, eb.ID) })
	if _, err := b.Connect(ctx, eb.ID, []framework.Peer{{Rank: 0, Address: ea.Address}}); err != nil {
		t.Fatal(err)
	}
	conn, err := a.Connect(ctx, ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// rig is a channel from rank 0 to rank 1 whose proxy does not run yet.
type rig struct {
	t        testing.TB
	a, b     *Transport
	conn     framework.ID
	proxy    framework.Proxy
	ring     *ring.Ring
	counters *memfd.Memory // of rank 1
	src      framework.ID
	key      framework.Parcel // of the counters
}

const rigBytes = 1 << 20

func newRig(t testing.TB, library string, mode Mode, change ...func(*Config)) *rig {
	t.Helper()
	ctx := context.Background()
	r := &rig{t: t, a: transportOn(t, library, mode, change...), b: transportOn(t, library, mode, change...)}
	r.conn = connected(t, r.a, r.b)
	register := func(tr *Transport, bytes uint64) (*memfd.Memory, framework.Registration) {
		m, err := memfd.New("rig", bytes, memfd.Options{})
		if err != nil {
			t.Fatal(err)
		}
		reg, err := tr.Register(ctx, segment(m))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tr.Close(ctx, reg.ID); m.Close() })
		return m, reg
	}
	_, src := register(r.a, rigBytes)
	_, dst := register(r.b, rigBytes)
	counters, words := register(r.b, 4096)
	r.src, r.counters, r.key = src.ID, counters, words.Key
	var err error
	if r.proxy, err = r.a.NewProxy(ctx); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		r.proxy.BindMemory(ctx, 0, framework.MemoryBinding{Local: src.ID}),
		r.proxy.BindMemory(ctx, 1, framework.MemoryBinding{Conn: r.conn, Key: dst.Key}),
		r.proxy.BindSemaphore(ctx, 0, framework.SemaphoreBinding{Conn: r.conn, Key: words.Key, Offset: 8}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if r.ring, err = ring.New(1024); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(); r.ring.Close() })
	return r
}

func (r *rig) start() {
	r.t.Helper()
	share, err := r.ring.Share()
	if err != nil {
		r.t.Fatal(err)
	}
	defer share.Close()
	if err := r.proxy.Start(context.Background(), share); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	_ = r.proxy.Stop(ctx)
}

func (r *rig) push(kind, bytes uint64) uint64 {
	r.t.Helper()
	pos, err := r.ring.Push(kernel.TriggerFields{Kind: kind, Bytes: bytes, Dst: 1}.Pack())
	if err != nil {
		r.t.Fatal(err)
	}
	return pos
}

func (r *rig) flushed(pos uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	return r.ring.WaitFlushed(ctx, 0, pos)
}

func (r *rig) count() uint64 { return *(*uint64)(unsafe.Add(r.counters.Addr(), 8)) }

// requests are the lines about work requests, in order.
func requests(lines []string) (all []string) {
	for _, l := range lines {
		if strings.HasPrefix(l, "post ") || strings.HasPrefix(l, "  + ") {
			all = append(all, l)
		}
	}
	return all
}

// The test checks the posts for each kind of trigger, their order, the number of calls, and
// which requests ask for a completion: a put does where no other one is to come. Small data travels
// inside the request.
func TestRequestsOfAtomics(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Atomic)
	r.push(kernel.TriggerData|kernel.TriggerSignal, 8)
	r.push(kernel.TriggerData, 4096)
	r.push(kernel.TriggerSignal, 0)
	pos := r.push(kernel.TriggerFlush, 0) // nothing to ask: the atomic answers
	r.push(kernel.TriggerData, 64)
	last := r.push(kernel.TriggerFlush, 0) // a read behind the data
	r.start()
	if err := r.flushed(last); err != nil || pos >= last {
		t.Fatal(err)
	}
	want := []string{
		"post write bytes=8 inline value=0",
		"  + add bytes=8 signaled value=1",
		"post write bytes=4096 signaled value=0",
		"post add bytes=8 signaled value=1",
		"post write bytes=64 signaled value=0",
		"post read bytes=8 signaled value=0",
	}
	if got := requests(lines()); !slices.Equal(got, want) {
		t.Errorf("posted\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.count() != 2 {
		t.Errorf("the counter is %d after 2 signals", r.count())
	}
}

// Signals by immediates: the table's entry goes first, the immediate has no data and
// follows the put in one call, and the peer reports how many it has counted.
func TestRequestsOfImmediates(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Immediate)
	r.push(kernel.TriggerData|kernel.TriggerSignal, 8)
	r.push(kernel.TriggerData, 4096)
	r.start()
	if err := r.flushed(r.push(kernel.TriggerSignal|kernel.TriggerFlush, 0)); err != nil {
		t.Fatal(err)
	}
	got := requests(lines())
	want := []string{
		"post write bytes=16 signaled value=0",
		"post write bytes=8 inline value=0",
		"  + imm bytes=0 signaled value=1",
		"post write bytes=4096 signaled value=0",
		"post imm bytes=0 signaled value=2",
		fmt.Sprintf("post imm bytes=0 signaled value=%d", askEntry<<countBits|1), // the flush
	}
	at := 0
	for _, l := range got { // the peer's reports are in between
		if at < len(want) && l == want[at] {
			at++
		}
	}
	if at != len(want) {
		t.Errorf("posted\n%s\nexpected, in this order,\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.count() != 2 {
		t.Errorf("the counter is %d after the flush of 2 signals", r.count())
	}
}

// No region that a peer can reach is registered with relaxed ordering, and only ib-host
// lets adapters add.
func TestAccess(t *testing.T) {
	for name, mode := range modes {
		lines := recorded(t)
		newRig(t, fake(t), mode)
		atomics := false
		for _, l := range lines() {
			var access int
			if _, err := fmt.Sscanf(l, "register access=%v", &access); err != nil {
				continue
			}
			if access&(1<<20) != 0 {
				t.Errorf("%s: a region has relaxed ordering: %s", name, l)
			}
			atomics = atomics || access&accessAtomic != 0
		}
		if atomics != (mode == Atomic) {
			t.Errorf("%s: regions for atomics: %v", name, atomics)
		}
	}
}

// Of puts without a flush, one asks for a completion where none is to come, and then one in
// a quarter of the queue, while that has not come. The last one is heard of all the same: Stop
// waits for it.
func TestSelectiveCompletions(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Atomic, func(c *Config) { c.QueueDepth = 64 })
	hold := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_VERBS_HOLD", hold)
	for range 40 {
		r.push(kernel.TriggerData, 128)
	}
	r.start()
	for limit := time.Now().Add(4 * time.Minute); len(requests(lines())) < 41; {
		if time.Now().After(limit) {
			t.Fatalf("%d requests within 20 s: expected 40 puts, and a read behind them", len(requests(lines())))
		}
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	r.stop()
	var want []string
	for n := range 40 {
		flags := ""
		if n%16 == 0 { // the first, and then each quarter of the queue
			flags = " signaled"
		}
		want = append(want, "post write bytes=128"+flags+" value=0")
	}
	want = append(want, "post read bytes=8 signaled value=0")
	if got := requests(lines()); !slices.Equal(got, want) {
		t.Errorf("posted\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Puts that are alone, each of them posted when the one before it is known to be done, are one
// request each: no request behind them asks for a completion. A flush still asks where the
// data is, since the completion of a write does not say.
func TestLonePuts(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Atomic)
	r.start()
	f := r.proxy.(*proxy).flows[0]
	quiet := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.completed == f.posted
	}
	var want []string
	for range 5 {
		r.push(kernel.TriggerData, 128)
		for limit := time.Now().Add(4 * time.Minute); r.ring.Depth() > 0 || !quiet(); {
			if time.Now().After(limit) {
				t.Fatal("no completion of a put within 20 s")
			}
		}
		want = append(want, "post write bytes=128 signaled value=0")
	}
	if err := r.flushed(r.push(kernel.TriggerFlush, 0)); err != nil {
		t.Fatal(err)
	}
	want = append(want, "post read bytes=8 signaled value=0")
	if got := requests(lines()); !slices.Equal(got, want) {
		t.Errorf("posted\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A put that is longer than the port's longest message is cut.
func TestLongPut(t *testing.T) {
	lines := recorded(t)
	r := newRig(t, fake(t), Atomic) // 64 KiB a message
	r.start()
	if err := r.flushed(r.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, rigBytes)); err != nil {
		t.Fatal(err)
	}
	writes := slices.DeleteFunc(requests(lines()), func(l string) bool { return !strings.Contains(l, "write bytes=65536") })
	if len(writes) != rigBytes>>16 || r.count() != 1 {
		t.Errorf("%d writes of 64 KiB and %d signals: expected %d and 1", len(writes), r.count(), rigBytes>>16)
	}
}

// A request that fails ends the proxy, with an error that names peer, device, port and
// status; a new link works.
func TestFailedRequest(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			for status, x := range map[int]struct {
				class error
				text  string
			}{
				4:  {framework.ErrUnavailable, "local protection error"},
				10: {framework.ErrPeer, "remote access error"},
				12: {framework.ErrPeer, "retries exceeded"},
				13: {framework.ErrPeer, "RNR retries exceeded"},
				99: {framework.ErrPeer, "unknown"},
			} {
				r := newRig(t, fake(t), mode)
				r.start()
				if err := r.flushed(r.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 8)); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "fail")
				if err := os.WriteFile(path, fmt.Append(nil, status), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("FAKE_VERBS_FAIL", path)
				r.push(kernel.TriggerData, 8)
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				err := r.proxy.Wait(ctx)
				cancel()
				wantError(t, err, x.class, name+" proxy rank 1", "device fake0 port 2", fmt.Sprintf("status %d (%s", status, x.text))
				t.Setenv("FAKE_VERBS_FAIL", "")
			}
			r := newRig(t, fake(t), mode)
			r.start()
			if err := r.flushed(r.push(kernel.TriggerData|kernel.TriggerSignal|kernel.TriggerFlush, 8)); err != nil {
				t.Errorf("a new link after failures: %v", err)
			}
		})
	}
}

// An endpoint has one connection at a time, and can have another one afterwards, on which
// counts begin anew.
func TestReconnect(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			a, b := transportOn(t, fake(t), mode), transportOn(t, fake(t), mode)
			ea, err := a.Listen(ctx, linkConfig(0))
			if err != nil {
				t.Fatal(err)
			}
			eb, err := b.Listen(ctx, linkConfig(1))
			if err != nil {
				t.Fatal(err)
			}
			peer := []framework.Peer{{Rank: 1, Address: eb.Address}}
			for range 3 {
				id, err := a.Connect(ctx, ea.ID, peer)
				if err != nil {
					t.Fatal(err)
				}
				_, err = a.Connect(ctx, ea.ID, peer)
				wantError(t, err, framework.ErrInvalid, "connected")
				if err := a.Close(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			_ = a.Close(ctx, ea.ID)
			_ = b.Close(ctx, eb.ID)
			if a.dev != nil || a.users != 0 {
				t.Errorf("the device is open with %d users after everything was closed", a.users)
			}
		})
	}
}

// Counters of a device's memory cannot be raised here: they get an inbox, a word for each.
func TestInbox(t *testing.T) {
	tr := transportOn(t, fake(t), Immediate)
	d, err := tr.acquire(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.release()
	m, err := memfd.New("device", 4096, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	region, err := d.register(m.Addr(), 4096, accessLocal)
	if err != nil {
		t.Fatal(err)
	}
	r := &registration{t: tr, region: region}
	if r.raise(64, 1) {
		t.Error("a counter was raised that no peer can reach")
	}
	share, err := r.openInbox()
	if err != nil {
		t.Fatal(err)
	}
	defer share.Close()
	inbox, err := memfd.Open(share.FD, 0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer inbox.Close()
	for _, n := range []uint64{1, 5} {
		if !r.raise(64, n) {
			t.Fatal("the inbox does not take a signal")
		}
	}
	if got := *(*uint64)(unsafe.Add(inbox.Addr(), 64)); got != 6 {
		t.Errorf("the inbox has %d, expected 6", got)
	}
	for _, at := range []uint64{1, 4092, 4096, 1<<64 - 8} {
		if r.raise(at, 1) {
			t.Errorf("a signal for offset %d was taken", at)
		}
	}
	region.close()
	_ = r.inbox.Close()
}
