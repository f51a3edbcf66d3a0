package cuda

import (
	"errors"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

func TestLaunch(t *testing.T) {
	d := open(t, 0)
	m := load(t, d)
	word0 := alloc(t, d, 8)
	k := kernelOf(t, m, "bump")
	for _, s := range []device.Stream{0, stream(t, d)} {
		check(t, d.Fill(word0.Addr(), 0, 8))
		for i := range 3 {
			// Overlap is an offer: adding commutes.
			check(t, run(k, device.Launch{Grid: 5, Block: 64, Stream: s, Overlap: i > 0}, &args{word0.Addr(), 2}))
		}
		check(t, d.Sync(s))
		if got := word(t, d, word0.Addr()); got != 30 {
			t.Errorf("stream %#x: %d: expected 30", uintptr(s), got)
		}
	}
	a := k.Attributes()
	if a.MaxThreads < 32 || a.Registers < 1 && !isEmulated() || a.Local != 0 || a.Shared != 0 {
		t.Errorf("%+v", a)
	}
	for _, l := range []device.Launch{{Grid: 0, Block: 1}, {Grid: 1}} {
		if err := run(k, l, &args{}); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "bump") {
			t.Errorf("%+v: %v: expected ErrInvalid that names the kernel", l, err)
		}
	}
	err := run(k, device.Launch{Grid: 1, Block: 100000}, &args{word0.Addr(), 1})
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "launch bump, grid 1, block 100000") {
		t.Errorf("%v: expected ErrInvalid with the shape", err)
	}
	if _, err := m.Kernel("missing"); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v: expected ErrInvalid that names the symbol", err)
	}
}

func TestClosedModule(t *testing.T) {
	d := open(t, 0)
	m := load(t, d)
	check(t, m.Close())
	if _, err := m.Kernel("bump"); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
}

func TestSharedMemory(t *testing.T) {
	d := open(t, 0)
	k := kernelOf(t, load(t, d), "shared")
	word0, s := alloc(t, d, 8), stream(t, d)
	most := uint32(d.facts.shared_optin)
	for _, n := range []uint32{1 << 10, 48 << 10, 48<<10 + 16, most, 16} {
		check(t, run(k, device.Launch{Grid: 1, Block: 32, Shared: n, Stream: s}, &args{word0.Addr(), 0}))
		check(t, d.Sync(s))
		if got := word(t, d, word0.Addr()); got != uint64(n) {
			t.Errorf("%d bytes: expected %d", got, n)
		}
	}
	if err := run(k, device.Launch{Grid: 1, Block: 32, Shared: most + 1}, &args{}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
	few, err := k.MaxBlocks(1024, most)
	check(t, err)
	many, err := k.MaxBlocks(64, 0)
	check(t, err)
	if few < d.Info().SMs || many < few {
		t.Errorf("%d and %d blocks on %d processors", few, many, d.Info().SMs)
	}
	if _, err := k.MaxBlocks(100000, 0); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
}

// The compiler's messages are part of the error.
func TestLoadRefuses(t *testing.T) {
	d := open(t, 0)
	if _, err := d.Load(nil); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
	_, err := d.Load([]byte(testPTX + "\n.visible .const .align 4 .u32 mscclpp_abi = 77;\n"))
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "cuda:0 load: invalid: image of ABI 77: expected 1; build it again") {
		t.Errorf("%v: expected ErrInvalid with both ABIs", err)
	}
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	takes := "for " + d.Info().Archs[0]
	if _, err := d.Load(own); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "cuda:0 load: invalid: image for EM_") || !strings.Contains(err.Error(), takes) {
		t.Errorf("%v: expected ErrInvalid that says what the image is for, and %q", err, takes)
	}
	newer := regexp.MustCompile(`\.target sm_\d+`).ReplaceAllString(testPTX, ".target sm_120")
	if _, err := d.Load([]byte(newer)); isEmulated() && (err == nil || !strings.Contains(err.Error(), takes)) {
		t.Errorf("an image for another GPU: %v: expected %q", err, takes)
	}
	for name, image := range map[string]string{
		"unknown instruction": strings.Replace(testPTX, "cvt.u64.u32", "frobnicate.u64.u32", 1),
		"undeclared register": strings.Replace(testPTX, ".reg .b32 %r<2>;", "", 1),
		"half":                testPTX[:len(testPTX)/2],
		"text":                "this is no PTX",
	} {
		m, err := d.Load([]byte(image))
		if err == nil {
			m.Close()
			t.Errorf("%s: loaded", name)
			continue
		}
		var e *Error
		if !errors.Is(err, framework.ErrInvalid) && !isEmulated() || !errors.As(err, &e) || e.Call != "cuModuleLoadDataEx" {
			t.Errorf("%s: %v: expected ErrInvalid from the driver", name, err)
			continue
		}
		if name != "text" && (e.Log == "" || !strings.Contains(err.Error(), strings.TrimSpace(e.Log))) {
			t.Errorf("%s: %v: expected the compiler's messages", name, err)
		}
	}
}

// Goroutines move between threads, and a thread serves many of them: the context is
// right everywhere.
func TestLaunchFromManyThreads(t *testing.T) {
	n, err := Count()
	if err != nil {
		t.Skipf("no NVIDIA driver on this machine: %v", err)
	}
	var devices []*Device
	var kernels []*Kernel
	var words []*Memory
	for i := range min(n, 4) {
		d := open(t, i)
		devices = append(devices, d)
		kernels = append(kernels, kernelOf(t, load(t, d), "bump"))
		words = append(words, alloc(t, d, 8))
	}
	const routines, launches = 24, 100
	var wg sync.WaitGroup
	for r := range routines {
		wg.Go(func() {
			if r%2 == 0 {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			for l := range launches {
				i := (r + l) % len(devices) // one thread, all devices in turn
				if err := run(kernels[i], device.Launch{Grid: 1, Block: 32}, &args{words[i].Addr(), 1}); err != nil {
					t.Error(err)
					return
				}
				if l%10 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	sum := uint64(0)
	for i, d := range devices {
		check(t, d.Sync(0))
		sum += word(t, d, words[i].Addr())
	}
	if sum != routines*launches {
		t.Errorf("%d launches: expected %d", sum, routines*launches)
	}
}

func TestLaunchDoesNotAllocate(t *testing.T) {
	d := open(t, 0)
	k, s, a := kernelOf(t, load(t, d), "nothing"), stream(t, d), new(args)
	word0 := alloc(t, d, 16)
	for name, f := range map[string]func() error{
		"launch":  func() error { return run(k, device.Launch{Grid: 1, Block: 32, Stream: s}, a) },
		"overlap": func() error { return run(k, device.Launch{Grid: 1, Block: 32, Stream: s, Overlap: true}, a) },
		"copy":    func() error { return d.Copy(s, word0.Addr(), word0.Addr()+8, 8) },
		"write":   func() error { return d.Write(s, word0.Addr(), 1) },
		"query":   func() error { _, err := d.Query(s); return err },
	} {
		if n := testing.AllocsPerRun(200, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	check(t, d.Sync(s))
}

// BenchmarkLaunch is the host's cost of an empty kernel; every thousandth launch
// waits, so that the queue does not fill.
func BenchmarkLaunch(b *testing.B) {
	d := open(b, 0)
	m := load(b, d)
	for name, overlap := range map[string]bool{"plain": false, "overlap": true} {
		b.Run(name, func(b *testing.B) {
			k, s, a := kernelOf(b, m, "nothing"), stream(b, d), new(args)
			l := device.Launch{Grid: 1, Block: 32, Stream: s, Overlap: overlap}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)); err != nil {
					b.Fatal(err)
				}
				if i++; i%1000 == 0 {
					b.StopTimer()
					check(b, d.Sync(s))
					b.StartTimer()
				}
			}
			check(b, d.Sync(s))
		})
	}
}
