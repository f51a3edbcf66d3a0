package cuda

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// gdrcopy points the process to the emulated library of GDRCopy, and checks in the end that
// it was left as it was found.
func gdrcopy(t *testing.T) (calls func() []string) {
	t.Helper()
	if open(t, 0); !isEmulated() {
		t.Skip("needs emulated GPUs: the stand-in for GDRCopy maps the memory of no other")
	}
	t.Setenv(EnvGDRCopy, emulated.GDRCopy(os.Getenv(EnvLibrary)))
	calls = emulated.GDRCopyCalls(t)
	t.Cleanup(func() {
		if err := emulated.GDRCopyLeft(calls()); err != nil {
			t.Error(err)
		}
	})
	return calls
}

// Words that the host stores are where kernels find them, whichever part of a page of the
// GPU the memory is, and nothing else is touched.
func TestHostStoresOnTheDevice(t *testing.T) {
	calls := gdrcopy(t)
	d := open(t, 0)
	const gpuPage, whole = 1 << 16, 3 << 16
	for _, part := range []struct{ offset, bytes, pages uint64 }{
		{0, whole, 3}, {0, 8, 1}, {gpuPage, gpuPage, 1}, {gpuPage + 4096 + 24, 512, 1}, {gpuPage - 64, 128, 2}, {8, whole - 16, 3},
	} {
		t.Run(fmt.Sprintf("%d bytes at %d", part.bytes, part.offset), func(t *testing.T) {
			m := alloc(t, d, whole)
			shares, err := m.Export()
			check(t, err)
			defer framework.Parcel{Shares: shares}.Close()
			own, err := d.Map(framework.Mapping{Shares: shares[:1], Offset: part.offset, Bytes: part.bytes})
			check(t, err)
			closeAfter(t, own)
			before := len(calls())
			v, err := d.MapForHost(own)
			check(t, err)
			page := m.Addr() + uintptr(part.offset)&^(gpuPage-1)
			if got, want := calls()[before:], []string{"open", fmt.Sprintf("pin %#x %d", page, part.pages*gpuPage), "map"}; !slices.Equal(got, want) {
				t.Errorf("%q: expected %q", got, want)
			}
			first, last := own.Addr(), own.Addr()+uintptr(part.bytes)-8
			want := make([]byte, whole)
			for addr, value := range map[uintptr]byte{first: 7, last: 9} {
				check(t, v.Store(addr, 1)) // its waiter sees the last
				check(t, v.Store(addr, uint64(value)<<56|uint64(value)))
				want[addr-m.Addr()], want[addr-m.Addr()+7] = value, value
			}
			check(t, v.Settle())
			got := make([]byte, whole)
			check(t, d.ReadAt(got, m.Addr()))
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("byte %d is %d, expected %d", i, got[i], want[i])
				}
			}
			for _, addr := range []uintptr{first - 8, last + 8, first + 4, 0, ^uintptr(7)} {
				if err := v.Store(addr, 1); !errors.Is(err, framework.ErrInvalid) {
					t.Errorf("a word at %#x of %d bytes at %#x: %v", addr, part.bytes, first, err)
				}
			}
			check(t, errors.Join(v.Close(), v.Close()))
			check(t, errors.Join(expect(v.Store(first, 1), framework.ErrClosed, "mapping"), expect(v.Settle(), framework.ErrClosed, "mapping")))
			if got, want := calls()[before+3:], []string{"unmap", "unpin", "close"}; !slices.Equal(got, want) {
				t.Errorf("%q: expected %q", got, want)
			}
		})
	}
}

// A store makes no garbage: one is made for each signal that arrives.
func TestStoresOfTheHostDoNotAllocate(t *testing.T) {
	gdrcopy(t)
	d := open(t, 0)
	m := alloc(t, d, 4096)
	v, err := d.MapForHost(m)
	check(t, err)
	closeAfter(t, v)
	if n := testing.AllocsPerRun(100, func() { check(t, v.Store(m.Addr(), 1)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The error names the missing part, and the parts that were made before are released.
func TestWithoutGDRCopy(t *testing.T) {
	calls := gdrcopy(t)
	d := open(t, 0)
	m := alloc(t, d, 4096)
	for lacks, text := range map[string]string{
		"gdr_open":       "gdr_open of GDRCopy answers No such file",
		"gdr_pin_buffer": "gdr_pin_buffer of GDRCopy answers Operation not permitted",
		"gdr_map":        "gdr_map of GDRCopy answers Cannot allocate memory",
		"gdr_version":    "is of version 1.4: expected 2",
	} {
		t.Run(lacks, func(t *testing.T) {
			t.Setenv(EnvGDRCopy, elsewhere(t)) // its version is asked for once
			t.Setenv(emulated.EnvWithout, lacks)
			_, err := d.MapForHost(m)
			check(t, errors.Join(expect(err, framework.ErrUnavailable, text), emulated.GDRCopyLeft(calls())))
		})
	}
	for path, text := range map[string]string{
		"/nowhere/libgdrapi.so":  "/nowhere/libgdrapi.so",
		os.Getenv(EnvLibrary):    "has no function gdr_runtime_get_version",
		"libgdrapi-of-nobody.so": "no GDRCopy: libgdrapi-of-nobody.so",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Setenv(EnvGDRCopy, path)
			_, err := d.MapForHost(m)
			check(t, expect(err, framework.ErrUnavailable, text))
		})
	}
	if v, err := d.MapForHost(m); err != nil {
		t.Errorf("after all these: %v", err)
	} else {
		check(t, v.Close())
	}
}

// elsewhere is the library under a path of its own.
func elsewhere(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(os.Getenv(EnvGDRCopy))
	check(t, err)
	path := filepath.Join(t.TempDir(), "libgdrapi.so")
	check(t, os.WriteFile(path, text, 0o600))
	return path
}

// By default the library is found by its name: here it is one that is loaded already.
func TestNameOfGDRCopy(t *testing.T) {
	gdrcopy(t)
	d := open(t, 0)
	m := alloc(t, d, 4096)
	for _, path := range []string{os.Getenv(EnvGDRCopy), ""} {
		t.Setenv(EnvGDRCopy, path)
		v, err := d.MapForHost(m)
		check(t, err)
		check(t, v.Close())
	}
}

func TestMemoryThatIsNotForTheHost(t *testing.T) {
	gdrcopy(t)
	d, other := open(t, 0), open(t, 1)
	hosted := open(t, 0, Hosted())
	off := open(t, 0, WithoutGDRCopy())
	closed := alloc(t, d, 4096)
	check(t, closed.Close())
	gone, err := Open(0)
	check(t, err)
	kept := alloc(t, gone, 4096)
	check(t, gone.Close())
	for _, c := range []struct {
		what  string
		dev   *Device
		m     device.Memory
		class error
		text  string
	}{
		{"of another device", other, alloc(t, d, 4096), framework.ErrInvalid, "of this device"},
		{"nothing", d, nil, framework.ErrInvalid, "of this device"},
		{"less than a word", d, alloc(t, d, 7), framework.ErrInvalid, "8 bytes"},
		{"of the host", hosted, alloc(t, hosted, 4096), framework.ErrUnsupported, "memory of the host"},
		{"closed", d, closed, framework.ErrClosed, "memory"},
		{"of a device that is closed", gone, kept, framework.ErrClosed, "device"},
		{"switched off", off, alloc(t, off, 4096), framework.ErrUnsupported, "switched off"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := c.dev.MapForHost(c.m)
			check(t, expect(err, c.class, c.text))
		})
	}
}
