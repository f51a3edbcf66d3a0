package cuda

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// With a driver, the tests run on its devices. Without one they run on the emulated
// driver, if there is a compiler to build it, so that all but the hardware is tested
// on any machine.

const envRole = "CUDA_TEST_ROLE" // of a process that a test starts

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(envRole)]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	clean := emulate()
	code := m.Run()
	clean()
	os.Exit(code)
}

// emulate points the package to the emulated driver if there is no other.
func emulate() (clean func()) {
	none := func() {}
	if _, err := Count(); err == nil || os.Getenv(EnvLibrary) != "" {
		return none
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	library, err := emulated.Library(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "without the emulated driver:", err)
		return none
	}
	dir, err := os.MkdirTemp("", "mscclpp-cuda-test-*")
	if err != nil {
		return none
	}
	os.Setenv(EnvLibrary, library)
	os.Setenv(emulated.EnvImages, dir)
	return func() { os.RemoveAll(dir) }
}

func isEmulated() bool { return os.Getenv(emulated.EnvImages) != "" }

// open returns device index; the test is skipped if there is none.
func open(t testing.TB, index int, opts ...Option) *Device {
	t.Helper()
	n, err := Count()
	if err != nil {
		t.Skipf("no NVIDIA driver on this machine: %v", err)
	}
	if index >= n {
		t.Skipf("needs %d GPUs, and there are %d", index+1, n)
	}
	d, err := Open(index, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func alloc(t testing.TB, d *Device, bytes uint64) *Memory {
	t.Helper()
	m, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, m)
	return m.(*Memory)
}

func closeAfter(t testing.TB, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func stream(t testing.TB, d *Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.CloseStream(s); err != nil {
			t.Error(err)
		}
	})
	return s
}

// word reads 8 bytes of device memory.
func word(t testing.TB, d *Device, addr uintptr) uint64 {
	t.Helper()
	v, err := readWord(d, addr)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func readWord(d *Device, addr uintptr) (v uint64, err error) {
	err = d.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&v)), 8), addr)
	return v, err
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// args is the argument of all test kernels.
type args struct {
	addr  uintptr
	value uint64
}

func run(k device.Kernel, l device.Launch, a *args) error {
	return k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

var standOnce sync.Once

// load loads the test kernels.
func load(t testing.TB, d *Device) *Module {
	t.Helper()
	if isEmulated() {
		standOnce.Do(func() { emulated.Stand(t, os.Getenv(emulated.EnvImages), []byte(testPTX), testStand) })
	}
	m, err := d.Load([]byte(testPTX))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, m)
	return m.(*Module)
}

func kernelOf(t testing.TB, m *Module, name string) *Kernel {
	t.Helper()
	k, err := m.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return k.(*Kernel)
}

// testPTX has four kernels of one argument: an address and a value.
const testPTX = `.version 7.0
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 dynamic[];

.visible .entry nothing(.param .align 8 .b8 p[16])
{
	ret;
}

// Each block adds the value to the word.
.visible .entry bump(.param .align 8 .b8 p[16])
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<3>;
	mov.u32 %r1, %tid.x;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra done;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [p+8];
	red.relaxed.sys.global.add.u64 [%rd1], %rd2;
done:
	ret;
}

// Waits until the word is at least the value.
.visible .entry spin(.param .align 8 .b8 p[16])
{
	.reg .pred %p<2>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [p+8];
again:
	ld.acquire.sys.global.u64 %rd3, [%rd1];
	setp.lt.u64 %p1, %rd3, %rd2;
	@%p1 bra again;
	ret;
}

// Stores how much dynamic shared memory there is, by way of its last word.
.visible .entry shared(.param .align 8 .b8 p[16])
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %dynamic_smem_size;
	mov.u32 %r2, dynamic;
	add.u32 %r3, %r2, %r1;
	st.volatile.shared.u32 [%r3+-4], %r1;
	ld.volatile.shared.u32 %r4, [%r3+-4];
	cvt.u64.u32 %rd2, %r4;
	st.global.u64 [%rd1], %rd2;
	ret;
}
`

// testStand is the program that the emulated driver runs for testPTX.
const testStand = `
#include <sched.h>
#include <stdint.h>
struct Args { uint64_t* word; uint64_t value; };
struct Shape { uint32_t grid, block, shared, reserved; };
extern "C" {
extern const uint32_t mscclpp_abi = 1;
void nothing(const void*, const void*) {}
void bump(const void* a, const void* s) {
  auto args = static_cast<const Args*>(a);
  __atomic_fetch_add(args->word, args->value * static_cast<const Shape*>(s)->grid, __ATOMIC_RELAXED);
}
void spin(const void* a, const void*) {
  auto args = static_cast<const Args*>(a);
  while (__atomic_load_n(args->word, __ATOMIC_ACQUIRE) < args->value) sched_yield();
}
void shared(const void* a, const void* s) { *static_cast<const Args*>(a)->word = static_cast<const Shape*>(s)->shared; }
}
`
