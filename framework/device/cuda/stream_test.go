package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// hostWord is a word that kernels and the process both see.
func hostWord(t testing.TB, d *Device) (*Memory, *uint64) {
	t.Helper()
	m, err := d.AllocHost(64)
	check(t, err)
	closeAfter(t, m)
	return m, (*uint64)(unsafe.Pointer(&m.HostBytes()[0]))
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * time.Minute); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited 4 minutes for %s", what)
		}
	}
}

func state(t testing.TB, d *Device, s device.Stream) device.StreamState {
	t.Helper()
	st, err := d.Query(s)
	check(t, err)
	return st
}

// A stream is busy while its kernel waits for a word, and idle once it came.
func TestQueryAndSync(t *testing.T) {
	d := open(t, 0)
	k, s := kernelOf(t, load(t, d), "spin"), stream(t, d)
	m, flag := hostWord(t, d)
	done, err := d.NewEvent(false)
	check(t, err)
	closeAfter(t, done)
	check(t, run(k, device.Launch{Grid: 1, Block: 1, Stream: s}, &args{m.Addr(), 1}))
	check(t, done.Record(s))
	if st := state(t, d, s); st != device.StreamBusy {
		t.Errorf("state %d: expected busy", st)
	}
	if ok, err := done.Query(); err != nil || ok {
		t.Errorf("event %v, %v: expected not reached", ok, err)
	}
	// Allocation, mapping and our own copies do not wait for it.
	var late atomic.Bool
	rescue := time.AfterFunc(4*time.Minute, func() {
		late.Store(true)
		atomic.StoreUint64(flag, 1)
	})
	other := alloc(t, d, 8)
	p, err := d.Map(framework.Mapping{Shares: []framework.Share{find(t, export(t, other), framework.ShareVMM)}, Bytes: 8})
	check(t, err)
	closeAfter(t, p)
	check(t, d.WriteAt([]byte{3}, p.Addr()))
	if v := word(t, d, other.Addr()); v != 3 {
		t.Errorf("%d: expected 3", v)
	}
	if rescue.Stop(); late.Load() {
		t.Error("an allocation waited for a kernel that runs")
	}
	atomic.StoreUint64(flag, 1)
	check(t, done.Sync())
	until(t, "the stream", func() bool { return state(t, d, s) == device.StreamIdle })
	check(t, d.Sync(s))
}

// Words are written in the order of the stream, and waited for.
func TestWriteAndWaitValue(t *testing.T) {
	d := open(t, 0)
	a, b := stream(t, d), stream(t, d)
	m, w := hostWord(t, d)
	v := alloc(t, d, 64)
	check(t, d.WaitValue(a, v.Addr(), 7)) // a waits for b, which waits for us
	check(t, d.Write(a, m.Addr()+8, 99))
	check(t, d.WaitValue(b, m.Addr(), 5))
	check(t, d.Write(b, v.Addr(), 7))
	if st := state(t, d, a); st != device.StreamBusy {
		t.Errorf("state %d: expected busy", st)
	}
	if got := atomic.LoadUint64(wordAt(m, 8)); got != 0 {
		t.Errorf("%d: written too early", got)
	}
	atomic.StoreUint64(w, 6) // more than 5 is enough
	check(t, d.Sync(a))
	if got := atomic.LoadUint64(wordAt(m, 8)); got != 99 {
		t.Errorf("%d: expected 99", got)
	}
	if got := word(t, d, v.Addr()); got != 7 {
		t.Errorf("%d: expected 7", got)
	}
	// A copy engine signals after its copy.
	src := alloc(t, d, 1<<20)
	dst := alloc(t, d, 1<<20)
	check(t, d.Memset(a, src.Addr(), 0x5a, 1<<20))
	check(t, d.Copy(a, dst.Addr(), src.Addr(), 1<<20))
	check(t, d.Write(a, m.Addr()+16, 1))
	until(t, "the signal", func() bool { return atomic.LoadUint64(wordAt(m, 16)) == 1 })
	if got := word(t, d, dst.Addr()+1<<20-8); got != 0x5a5a5a5a5a5a5a5a {
		t.Errorf("%#x: the signal overtook the copy", got)
	}
}

func wordAt(m *Memory, offset int) *uint64 { return (*uint64)(unsafe.Pointer(&m.HostBytes()[offset])) }

func TestEvents(t *testing.T) {
	d := open(t, 0)
	a, b := stream(t, d), stream(t, d)
	start, err := d.NewEvent(true)
	check(t, err)
	closeAfter(t, start)
	end, err := d.NewEvent(true)
	check(t, err)
	closeAfter(t, end)
	v := alloc(t, d, 1<<20)
	check(t, start.Record(a))
	check(t, d.Memset(a, v.Addr(), 1, 1<<20))
	check(t, end.Record(a))
	check(t, end.Wait(b)) // b continues where a was
	check(t, d.Copy(b, v.Addr(), v.Addr()+1<<19, 8))
	check(t, d.Sync(b))
	if ok, err := end.Query(); err != nil || !ok {
		t.Errorf("%v, %v: expected reached", ok, err)
	}
	if dt, err := end.Since(start); err != nil || dt < 0 || dt > 10*time.Second {
		t.Errorf("%v, %v", dt, err)
	}
	untimed, err := d.NewEvent(false)
	check(t, err)
	closeAfter(t, untimed)
	check(t, untimed.Record(a))
	check(t, untimed.Sync())
	if _, err := untimed.Since(start); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
}

func TestPriorities(t *testing.T) {
	d := open(t, 0)
	least, greatest := d.Priorities()
	if greatest > least {
		t.Errorf("priorities from %d to %d: expected the greatest to be the smaller number", least, greatest)
	}
	s, err := d.NewPriorityStream(greatest)
	check(t, err)
	check(t, d.CloseStream(s))
	if err := d.CloseStream(0); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
}

var modes = []CaptureMode{CaptureGlobal, CaptureThreadLocal, CaptureRelaxed}

// Graphs are captured in every mode, again and again, while other goroutines
// allocate, load and wait; and are launched a thousand times while they do.
func TestGraphs(t *testing.T) {
	d := open(t, 0)
	m := load(t, d)
	k := kernelOf(t, m, "bump")
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			v := alloc(t, d, 64)
			s := stream(t, d)
			stop := disturb(t, d)
			for range 10 { // captures that are thrown away
				g := capture(t, d, s, mode, k, v)
				check(t, g.Close())
			}
			g := capture(t, d, s, mode, k, v)
			if got := word(t, d, v.Addr()); got != 0 {
				t.Errorf("%d: capture ran the kernel", got)
			}
			const launches = 1000
			for range launches {
				check(t, g.Launch(s))
			}
			check(t, d.Sync(s))
			stop()
			for i, want := range []uint64{2 * launches, 2 * launches, 42} {
				if got := word(t, d, v.Addr()+uintptr(8*i)); got != want {
					t.Errorf("word %d is %d: expected %d", i, got, want)
				}
			}
			check(t, g.Close())
			if err := g.Launch(s); !errors.Is(err, framework.ErrClosed) {
				t.Errorf("%v: expected ErrClosed", err)
			}
		})
	}
}

// capture records two kernels, a copy and a store.
func capture(t *testing.T, d *Device, s device.Stream, mode CaptureMode, k *Kernel, v *Memory) *Graph {
	t.Helper()
	check(t, d.BeginCapture(s, mode))
	for i := range 2 {
		check(t, run(k, device.Launch{Grid: 1, Block: 32, Stream: s, Overlap: i > 0}, &args{v.Addr(), 1}))
	}
	check(t, d.Copy(s, v.Addr()+8, v.Addr(), 8))
	check(t, d.Write(s, v.Addr()+16, 42))
	if st := state(t, d, s); st != device.StreamCapturing {
		t.Errorf("state %d: expected capturing", st)
	}
	if err := d.Sync(s); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
	// On the capturing thread as well: our own needs do not spoil the capture.
	check(t, d.Fill(v.Addr()+24, 1, 8))
	check(t, alloc(t, d, 4096).Close())
	g, err := d.EndCapture(s)
	if err != nil {
		t.Fatal(err)
	}
	if g.Nodes() != 4 {
		t.Errorf("%d nodes: expected 4", g.Nodes())
	}
	return g
}

// disturb does in other goroutines what would spoil captures, until it is stopped.
func disturb(t *testing.T, d *Device) (stop func()) {
	var ended atomic.Bool
	var rounds atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !ended.Load() {
				rounds.Add(1)
				err := func() error {
					m, err := d.Alloc(1 << 16)
					if err != nil {
						return err
					}
					module, err := d.Load([]byte(testPTX))
					if err != nil {
						return err
					}
					e, err := d.NewEvent(false)
					if err != nil {
						return err
					}
					_, err = e.Query()
					s, err2 := d.NewStream()
					return errors.Join(err, err2, d.WriteAt([]byte{1}, m.Addr()), d.Sync(s), d.CloseStream(s), e.Close(), module.Close(), m.Close())
				}()
				if err != nil {
					t.Errorf("beside a capture: %v", err)
					return
				}
			}
		})
	}
	until(t, "the disturbance", func() bool { return rounds.Load() > 0 })
	return func() {
		ended.Store(true)
		wg.Wait()
	}
}

func TestCaptureRefuses(t *testing.T) {
	d := open(t, 0)
	s := stream(t, d)
	for _, err := range []error{d.BeginCapture(0, CaptureGlobal), d.BeginCapture(s, 3), d.BeginCapture(s, -1)} {
		if !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%v: expected ErrInvalid", err)
		}
	}
	if g, err := d.EndCapture(s); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v, %v: expected ErrInvalid", g, err)
	}
	if CaptureMode(9).String() != "mode 9" {
		t.Error(CaptureMode(9))
	}
	// The stream is usable after all that.
	check(t, d.Sync(s))
}

// The application's context on its thread is the same after any call, and calls do
// their work with any context.
func TestContextOfTheThreadIsRestored(t *testing.T) {
	a, b := open(t, 0), open(t, 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	was := a.swapCurrent(a.handle())
	defer a.swapCurrent(was)
	s := stream(t, b)
	v := alloc(t, b, 64)
	m := load(t, b)
	k := kernelOf(t, m, "bump")
	g := capture(t, b, s, CaptureThreadLocal, k, v)
	check(t, b.Fill(v.Addr(), 0, 64))
	for name, f := range map[string]func() error{
		"launch": func() error { return run(k, device.Launch{Grid: 1, Block: 1, Stream: s}, &args{v.Addr(), 1}) },
		"graph":  func() error { return g.Launch(s) },
		"copy":   func() error { return b.Copy(s, v.Addr()+32, v.Addr(), 8) },
		"sync":   func() error { return b.Sync(s) },
		"query":  func() error { _, err := b.Query(s); return err },
		"alloc": func() error {
			m, err := b.Alloc(64)
			return errors.Join(err, m.Close())
		},
		"bound": func() error {
			return b.Bound(func() error { // as for a library that takes the device from the thread
				if now := b.swapCurrent(b.handle()); now != b.handle() {
					return fmt.Errorf("context %#x: expected the device's, %#x", now, b.handle())
				}
				return nil
			})
		},
		"refused": func() error { _, _ = m.Kernel("missing"); return nil },
		"module": func() error {
			m, err := b.Load([]byte(testPTX))
			return errors.Join(err, m.Close())
		},
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now := a.swapCurrent(a.handle()); now != a.handle() {
			t.Errorf("%s: leaves the context %#x: expected the application's, %#x", name, now, a.handle())
		}
	}
	check(t, b.Sync(s))
	if got := word(t, b, v.Addr()); got != 3 {
		t.Errorf("%d: expected 3, of a launch and a graph of two", got)
	}
	check(t, g.Close())
}
