package verbs

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	frameproxy "github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// From push to post: what the proxy adds to the adapter's time for each trigger. The fake
// moves 8 bytes, which is little.
func BenchmarkTrigger(b *testing.B) {
	for name, mode := range modes {
		for what, kind := range map[string]uint64{"put": kernel.TriggerData, "put+signal": kernel.TriggerData | kernel.TriggerSignal} {
			b.Run(name+"/"+what, func(b *testing.B) {
				r := newRig(b, fake(b), mode)
				r.start()
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N - 1 {
					r.push(kind, 8)
				}
				if err := r.flushed(r.push(kind|kernel.TriggerFlush, 8)); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// Of many triggers in a row each takes less than a microsecond: the time of a batch, until
// the proxy has posted all of it, over the triggers in it, which the proxy performs while the
// next are pushed. The work of the fake for each is in it. The best of many batches is the one
// that met no other work on the processors; on a busy machine there are more of them.
func TestTriggerTime(t *testing.T) {
	const least, triggers, shortest = 400, 50, 20
	bound := 1000.0
	if raceEnabled {
		bound *= 20
	}
	for _, x := range []struct {
		name string
		mode Mode
		kind uint64
	}{
		{"ib-host, put", Atomic, kernel.TriggerData},
		{"ib-host, put and signal", Atomic, kernel.TriggerData | kernel.TriggerSignal},
		{"ib-nonatomic, put", Immediate, kernel.TriggerData},
		{"ib-nonatomic, put and signal", Immediate, kernel.TriggerData | kernel.TriggerSignal},
	} {
		r := newRig(t, fake(t), x.mode)
		r.start()
		best, pushed, batches := time.Hour, 0, 0
		for limit := time.Now().Add(10 * time.Second); batches < least || best > triggers*time.Duration(bound) && time.Now().Before(limit); batches++ {
			start := time.Now()
			for range triggers {
				r.push(x.kind, 8)
			}
			for r.ring.Tail() < uint64(pushed+triggers) && time.Since(start) < 20*time.Second {
			}
			took := time.Since(start)
			if pushed += triggers; r.ring.Tail() != uint64(pushed) {
				t.Fatalf("%s: %d of %d triggers were taken within 20 s: %v", x.name, r.ring.Tail(), pushed, r.ring.Err())
			}
			best = min(best, took)
		}
		if err := r.flushed(r.push(x.kind|kernel.TriggerFlush, 8)); err != nil {
			t.Fatal(err)
		}
		each := float64(best.Nanoseconds()) / triggers
		t.Logf("%s: %.0f ns a trigger in the best of %d batches of %d", x.name, each, batches, triggers)
		if each < shortest || each >= bound {
			t.Errorf("%s: %.0f ns a trigger: expected %d to %.0f", x.name, each, shortest, bound)
		}
	}
}

// One trigger by itself, from push to post, while the proxy polls: the median of many, each
// pushed when the one before has been performed. The fake reads the clock when it is called,
// so nothing of the device is in it. The bound is on the proxy's part, from the loop that
// has found the trigger to the post; before that comes what it takes for a word that one
// processor has written to be read by another, which is the machine's affair.
func TestSingleTriggerTime(t *testing.T) {
	bound := 1000.0
	if raceEnabled {
		bound *= 20
	}
	path := filepath.Join(t.TempDir(), "stamp")
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	page, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(syscall.Munmap(page), file.Close()) })
	posted := (*int64)(unsafe.Pointer(unsafe.SliceData(page)))
	t.Setenv("FAKE_VERBS_STAMP", path)
	for name, mode := range modes {
		for what, kind := range map[string]uint64{"put": kernel.TriggerData, "signal": kernel.TriggerSignal, "put and signal": kernel.TriggerData | kernel.TriggerSignal} {
			t.Run(name+", "+what, func(t *testing.T) { singleTrigger(t, mode, kind, posted, bound) })
		}
	}
}

func singleTrigger(t *testing.T, mode Mode, kind uint64, posted *int64, bound float64) {
	const block, least = 201, 20
	r := newRig(t, fake(t), mode, func(c *Config) { c.DrainSpin = time.Minute }) // it polls all the time
	p := r.proxy.(*proxy)
	var found atomic.Int64
	p.Base = frameproxy.NewBase(func(of *ring.Ring) frameproxy.Handler {
		p.ring = of
		return func(t kernel.Trigger, pos uint64) frameproxy.Result {
			found.Store(time.Now().UnixNano())
			return p.handle(t, pos)
		}
	}, frameproxy.Options{Spin: time.Minute, Progress: p.progress, Owes: p.open.Load})
	r.start()
	whole, part := math.Inf(1), math.Inf(1) // medians of the best block
	pushed, blocks := uint64(0), 0
	for limit := time.Now().Add(10 * time.Second); blocks == 0 || (blocks < least || part >= bound) && time.Now().Before(limit); blocks++ {
		var fromPush, inLoop []float64
		for range block {
			start := time.Now()
			r.push(kind, 8)
			pushed++
			for n := 0; r.ring.Tail() < pushed && time.Since(start) < 20*time.Second; n++ {
				if n > 1000 { // it waits until the peer has counted earlier signals, which takes a core
					ring.Yield()
				}
			}
			if r.ring.Tail() != pushed {
				t.Fatalf("trigger %d was not taken within 20 s: %v", pushed, r.ring.Err())
			}
			at := atomic.LoadInt64(posted)
			fromPush, inLoop = append(fromPush, float64(at-start.UnixNano())), append(inLoop, float64(at-found.Load()))
		}
		whole, part = min(whole, median(fromPush)), min(part, median(inLoop))
	}
	if err := r.flushed(r.push(kind|kernel.TriggerFlush, 8)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f ns from the loop to the post, %.0f from the push: the smallest medians of %d blocks of %d single triggers", part, whole, blocks, block)
	if part <= 0 || part >= bound {
		t.Errorf("%.0f ns from the loop to the post of a single trigger: expected more than 0, and less than %.0f", part, bound)
	}
	if whole < part {
		t.Errorf("%.0f ns from push to post, of which %.0f are in the loop: one of the two is not what it is called", whole, part)
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// The path of a message allocates nothing.
func TestNoAllocations(t *testing.T) {
	for name, mode := range modes {
		r := newRig(t, fake(t), mode)
		p := r.proxy.(*proxy)
		p.ring = r.ring // the handler is called here, not by a thread
		trigger := kernel.TriggerFields{Kind: kernel.TriggerData | kernel.TriggerSignal | kernel.TriggerFlush, Bytes: 8, Dst: 1}.Pack()
		pos := uint64(0)
		limit := time.Now().Add(20 * time.Second)
		turn := func() {
			if r := p.handle(trigger, pos); r != frameproxy.Continue {
				t.Fatal(r)
			}
			pos++
			for len(p.pending) > 0 && time.Now().Before(limit) {
				if _, err := p.progress(); err != nil {
					t.Fatal(err)
				}
			}
		}
		turn()
		if n := testing.AllocsPerRun(200, turn); n >= 1 {
			t.Errorf("%s: %v allocations for each message", name, n)
		}
	}
}
