package actor_test

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image/imagetest"
)

// rig is where kernels are tried out: the CPU as a device, and memory that Go does
// not move.
type rig struct {
	t      testing.TB
	device device.Device
	set    *image.Set
	arch   string
	arena  []byte // of which scratch hands out pieces
	used   int
}

func TestMain(m *testing.M) {
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices, for up to 10 ms. With one for
	// each rank nobody waits for that: ranks of a real job have processes of their own.
	runtime.GOMAXPROCS(max(16, runtime.NumCPU()))
	os.Exit(m.Run())
}

// newRig builds the actor's images for one architecture, which this processor has
// to be able to run: "" means the best.
func newRig(t testing.TB, arch string) *rig {
	t.Helper()
	d, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	archs := d.Info().Archs
	if arch == "" {
		arch = archs[0]
	}
	if !slices.Contains(archs, arch) {
		t.Skipf("no %s here: this processor runs %v", arch, archs)
	}
	return &rig{t: t, device: d, set: imagetest.Build(t, "kernels/kernels.json", arch), arch: arch}
}

// kernel loads the actor, or for a type its reductions.
func (b *rig) kernel(typ string) device.Kernel {
	b.t.Helper()
	id, symbol := "actor-"+b.arch, actor.Symbol
	if typ != "" {
		id, symbol = "actor_reduce-"+typ+"-"+b.arch, actor.ReduceSymbol
	}
	data, err := b.set.Read(id)
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := b.device.Load(data)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { m.Close() })
	k, err := m.Kernel(symbol)
	if err != nil {
		b.t.Fatal(err)
	}
	return k
}

// memory returns zeroed pages that end at a page that cannot be touched: a kernel
// that runs over the end faults.
func (b *rig) memory(bytes int) []byte {
	b.t.Helper()
	page := unix.Getpagesize()
	size := (bytes + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Munmap(all) })
	if err := unix.Mprotect(all[size:], unix.PROT_NONE); err != nil {
		b.t.Fatal(err)
	}
	return all[size-bytes : size : size]
}

// scratch returns bytes at an address that is shift past a multiple of 64, from an
// arena that is used over and over.
func (b *rig) scratch(bytes, shift int) []byte {
	if b.arena == nil {
		b.arena = b.memory(64 << 20)
	}
	need := (bytes+shift+63)&^63 + 64
	if b.used+need > len(b.arena) {
		b.used = 0
	}
	start := b.used + shift
	b.used += need
	piece := b.arena[start : start+bytes : start+bytes]
	clear(piece)
	return piece
}

// put stores values in memory that kernels may read and returns their address.
func put[T any](b *rig, values ...T) uintptr {
	b.t.Helper()
	size := int(unsafe.Sizeof(values[0])) * len(values)
	m := b.scratch(size, 0)
	copy(unsafe.Slice((*T)(unsafe.Pointer(&m[0])), len(values)), values)
	return addr(m)
}

func addr(m []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }

// at views memory that put or memory made.
func at[T any](a uintptr) *T {
	return *(**T)(unsafe.Pointer(&a))
}

// launch runs a kernel on a thread of its own until it returns.
func launch[T any](b *rig, k device.Kernel, args *T) {
	b.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := k.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(args), unsafe.Sizeof(*args)); err != nil {
		b.t.Error(err) // perhaps not the goroutine of the test
	}
}

// prepare stores the steps and returns a function that runs the actor, from whatever
// goroutine, until it returns.
func (b *rig) prepare(k device.Kernel, args *actor.Args, steps []actor.Step) (run func()) {
	b.t.Helper()
	if args.Control == 0 {
		args.Control = put(b, kernel.WaitControl{})
	}
	args.Grid = put(b, kernel.GridBarrier{})
	args.Steps, args.Count = put(b, steps...), uint32(len(steps))
	args.Done, args.Failed = put(b, uint64(0)), put(b, uint32(0))
	return func() { launch(b, k, args) }
}

// perform runs the actor and returns the steps, with results, and how many of them
// were done.
func (b *rig) perform(k device.Kernel, args actor.Args, steps ...actor.Step) ([]actor.Step, uint64) {
	b.t.Helper()
	b.prepare(k, &args, steps)()
	return unsafe.Slice(at[actor.Step](args.Steps), len(steps)), *at[uint64](args.Done)
}
