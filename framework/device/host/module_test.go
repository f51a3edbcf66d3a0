package host

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

const source = `
#include <stdint.h>
%ABI%
struct args { uint64_t in; uint64_t* out; };
static uint64_t launches;
void add_launches(const struct args* a, const uint32_t* shape) {
  *a->out = a->in + ++launches + 1000u * shape[0] + 100000u * shape[1];
}
void nothing(const void* a, const void* shape) {}
`

// build compiles an image; abi is the line that defines its ABI.
func build(t testing.TB, abi string) []byte {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	dir := t.TempDir()
	c, so := filepath.Join(dir, "image.c"), filepath.Join(dir, "image.so")
	if err := os.WriteFile(c, []byte(strings.ReplaceAll(source, "%ABI%", abi)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", so, c).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	image, err := os.ReadFile(so)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

const goodABI = "const uint32_t mscclpp_abi = 1;"

type addArgs struct {
	in  uint64
	out uintptr
}

func TestLaunch(t *testing.T) {
	image := build(t, goodABI)
	fds, maps := usage(t)
	d := open(t)
	m, err := d.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel("add_launches")
	if err != nil {
		t.Fatal(err)
	}
	result := alloc(t, d, 8)
	for i := uint64(1); i <= 3; i++ {
		args := addArgs{in: 7, out: result.Addr()}
		if err := k.Launch(device.Launch{Grid: 2, Block: 3}, unsafe.Pointer(&args), unsafe.Sizeof(args)); err != nil {
			t.Fatal(err)
		}
		if got := *(*uint64)(at(result.Addr())); got != 302007+i {
			t.Fatalf("launch %d: %d: expected %d", i, got, 302007+i)
		}
	}
	for _, l := range []device.Launch{{Grid: 0, Block: 1}, {Grid: 1}, {Grid: 1, Block: 1, Stream: 9}} {
		if err := k.Launch(l, nil, 0); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "add_launches") {
			t.Errorf("%+v: %v: expected ErrInvalid that names the kernel", l, err)
		}
	}
	// A second load of the same bytes is another module, with its own variables.
	m2, err := d.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	k2, err := m2.Kernel("add_launches")
	if err != nil {
		t.Fatal(err)
	}
	args := addArgs{out: result.Addr()}
	if err := k2.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(&args), unsafe.Sizeof(args)); err != nil {
		t.Fatal(err)
	}
	if got := *(*uint64)(at(result.Addr())); got != 101001 {
		t.Errorf("second module: %d: expected 101001", got)
	}
	if _, err := m.Kernel("missing"); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v: expected ErrInvalid that names the symbol", err)
	}
	for _, x := range []device.Module{m, m2, m} {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := m.Kernel("nothing"); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
	result.Close()
	if f, n := usage(t); f != fds || n != maps {
		t.Errorf("%d memfds and %d mappings are left: expected %d and %d", f, n, fds, maps)
	}
}

func TestLoadRefuses(t *testing.T) {
	d := open(t)
	good := build(t, goodABI)
	missing := build(t, "")
	other := build(t, "const uint32_t mscclpp_abi = 77;")
	unresolved := build(t, goodABI+"\nint nowhere(void); int use(void) { return nowhere(); }")
	foreign := bytes.Clone(good)
	foreign[18] = 0x15 // machine: PowerPC
	for _, c := range []struct {
		name  string
		image []byte
		want  string
	}{
		{"empty", nil, "not a shared object"},
		{"text", []byte("#!/bin/sh\n"), "not a shared object for EM_"},
		{"half", good[:len(good)/2], "not a shared object"},
		{"no ABI", missing, "mscclpp_abi"},
		{"other ABI", other, "ABI 77: expected 1"},
		{"unresolved symbol", unresolved, "nowhere"},
		{"other machine", foreign, "expected a shared object for"},
	} {
		m, err := d.Load(c.image)
		if err == nil {
			m.Close()
			t.Errorf("%s: loaded", c.name)
			continue
		}
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v: expected ErrInvalid with %q", c.name, err, c.want)
		}
	}
	// Every truncation is an error, none a crash of the dynamic linker. Section
	// headers stand at the end, so cut them off the books to get past them.
	stripped := bytes.Clone(good)
	copy(stripped[0x28:], make([]byte, 8)) // e_shoff
	copy(stripped[0x3a:], make([]byte, 6)) // e_shentsize, e_shnum, e_shstrndx
	for n := 64; n < len(stripped); n += 997 {
		if m, err := d.Load(stripped[:n]); err == nil {
			m.Close()
		} else if !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("cut at %d: %v: expected ErrInvalid", n, err)
		}
	}
}

func TestPathsOfLoadsDiffer(t *testing.T) {
	seen := map[string]uint32{}
	for load := uint32(1); load < 3000; load++ {
		p := uniquePath(load, 7)
		if other, ok := seen[p]; ok {
			t.Fatalf("loads %d and %d have the path %s", other, load, p)
		}
		seen[p] = load
	}
	if p := uniquePath(^uint32(0), 1<<20); len(p) > 128 {
		t.Errorf("%d characters", len(p))
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := os.Stat(uniquePath(0b1011, int(f.Fd()))); err != nil {
		t.Error(err)
	}
}

func TestConcurrentLoads(t *testing.T) {
	d, image := open(t), build(t, goodABI)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				m, err := d.Load(image)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := m.Kernel("nothing"); err != nil {
					t.Error(err)
				}
				m.Close()
			}
		})
	}
	wg.Wait()
}

func TestLaunchDoesNotAllocate(t *testing.T) {
	k := nothing(t)
	args := new(addArgs)
	n := testing.AllocsPerRun(1000, func() {
		if err := k.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(args), unsafe.Sizeof(*args)); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a launch", n)
	}
	runtime.KeepAlive(args)
}

func nothing(t testing.TB) device.Kernel {
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load(build(t, goodABI))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	k, err := m.Kernel("nothing")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func BenchmarkLaunch(b *testing.B) {
	k := nothing(b)
	args := new(addArgs)
	b.ReportAllocs()
	for b.Loop() {
		_ = k.Launch(device.Launch{Grid: 1, Block: 1}, unsafe.Pointer(args), unsafe.Sizeof(*args))
	}
}
