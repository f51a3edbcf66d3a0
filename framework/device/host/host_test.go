package host

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

func open(t *testing.T) *Device {
	t.Helper()
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func alloc(t *testing.T, d *Device, bytes uint64) *Memory {
	t.Helper()
	m, err := d.Alloc(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m.(*Memory)
}

func export(t *testing.T, m device.Memory) []framework.Share {
	t.Helper()
	shares, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { framework.Parcel{Shares: shares}.Close() })
	return shares
}

// usage counts what a leak would leave: descriptors of memfds and mappings.
func usage(t *testing.T) (fds, maps int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(link, "memfd:") {
			fds++
		}
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return fds, strings.Count(string(text), "memfd:")
}

func TestMapSharesOfAllocation(t *testing.T) {
	fds, maps := usage(t)
	d := open(t)
	m, err := d.Alloc(10000)
	if err != nil {
		t.Fatal(err)
	}
	shares, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	if len(shares) != 2 || shares[0].Kind != framework.ShareLocal || shares[1].Kind != framework.ShareMemFD {
		t.Fatalf("%v: expected a local share and a memfd", shares)
	}
	var all []device.Memory
	for _, s := range shares {
		p, err := d.Map(framework.Mapping{Shares: []framework.Share{s}, Offset: 100, Bytes: 9900})
		if err != nil {
			t.Fatal(err)
		}
		device.Bytes(p)[0] = byte(len(all) + 1)
		if device.Bytes(m)[100] != byte(len(all)+1) {
			t.Errorf("%s: a write is not seen", s.Kind)
		}
		if again, err := p.Export(); err != nil || again != nil {
			t.Errorf("%s: mapped memory exports %v, %v", s.Kind, again, err)
		}
		if same := p.Addr() == m.Addr()+100; same != (s.Kind == framework.ShareLocal) {
			t.Errorf("%s: at %#x, memory at %#x", s.Kind, p.Addr(), m.Addr())
		}
		all = append(all, p)
	}
	// The exporter closes first: what was mapped stays.
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		device.Bytes(p)[9899] = byte(i)
	}
	if _, err := m.Export(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("export after close: %v: expected ErrClosed", err)
	}
	for _, p := range append(all, m, all[0]) {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Map(framework.Mapping{Shares: shares[:1], Bytes: 1}); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("local share of closed memory: %v: expected ErrClosed", err)
	}
	framework.Parcel{Shares: shares}.Close()
	if f, n := usage(t); f != fds || n != maps {
		t.Errorf("%d memfds and %d mappings are left: expected %d and %d", f, n, fds, maps)
	}
}

func TestMapTriesSharesInOrder(t *testing.T) {
	d := open(t)
	m := alloc(t, d, 4096)
	shares := export(t, m)
	foreign := framework.Share{Kind: framework.ShareLocal, Blob: bytes.Clone(shares[0].Blob)}
	foreign.Blob[1] ^= 1
	p, err := d.Map(framework.Mapping{Shares: []framework.Share{foreign, {Kind: framework.ShareFabric}, shares[1]}, Bytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	_, err = d.Map(framework.Mapping{Shares: []framework.Share{foreign, {Kind: framework.ShareFabric}}, Bytes: 4096})
	if err == nil {
		t.Fatal("mapped")
	}
	for _, want := range []string{"local: unavailable: made by another process", "fabric: unsupported", "4096 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if !errors.Is(err, framework.ErrUnavailable) || !errors.Is(err, framework.ErrUnsupported) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q: expected both classes on one line", err)
	}
}

func TestMapRefuses(t *testing.T) {
	d := open(t)
	shares := export(t, alloc(t, d, 4096))
	local, fd := shares[:1], shares[1:]
	for name, c := range map[string]struct {
		m    framework.Mapping
		want error
	}{
		"no share":         {framework.Mapping{Bytes: 1}, framework.ErrInvalid},
		"local too long":   {framework.Mapping{Shares: local, Bytes: 4097}, framework.ErrInvalid},
		"local wraps":      {framework.Mapping{Shares: local, Offset: ^uint64(0), Bytes: 2}, framework.ErrInvalid},
		"local empty":      {framework.Mapping{Shares: local}, framework.ErrInvalid},
		"memfd too long":   {framework.Mapping{Shares: fd, Offset: 4096, Bytes: 1}, framework.ErrInvalid},
		"memfd without fd": {framework.Mapping{Shares: []framework.Share{{Kind: framework.ShareMemFD}}, Bytes: 1}, framework.ErrInvalid},
		"short blob":       {framework.Mapping{Shares: []framework.Share{{Kind: framework.ShareLocal, Blob: local[0].Blob[:5]}}, Bytes: 1}, framework.ErrInvalid},
	} {
		if p, err := d.Map(c.m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v: expected %v", name, p, err, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	b := make([]byte, 100)
	m := Wrap(uintptr(ptr(b)), 100)
	device.Bytes(m)[99] = 3
	if b[99] != 3 || m.Bytes() != 100 {
		t.Error("not the same memory")
	}
	if shares, err := m.Export(); err != nil || shares != nil {
		t.Errorf("%v, %v: expected no shares", shares, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

func TestClosedDevice(t *testing.T) {
	d := open(t)
	m := alloc(t, d, 1)
	d.Close()
	_, err1 := d.Alloc(1)
	_, err2 := d.Map(framework.Mapping{})
	_, err3 := d.Object(framework.Object{}, nil)
	_, err4 := d.Load(nil)
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, framework.ErrClosed) {
			t.Errorf("%d: %v: expected ErrClosed", i, err)
		}
	}
	device.Bytes(m)[0] = 1 // memory outlives the device
}

func TestInfo(t *testing.T) {
	i := open(t).Info()
	if i.Device != framework.Host || i.SMs != 1 || i.Name == "" || len(i.Archs) == 0 {
		t.Errorf("%+v", i)
	}
}

// The kernel's own reading of the processor must agree with ours.
func TestArchsAgreeWithKernel(t *testing.T) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip("no /proc/cpuinfo on this machine")
	}
	_, line, ok := strings.Cut(string(text), "\nflags")
	if !ok {
		t.Skip("not an x86 processor: /proc/cpuinfo has no flags")
	}
	line, _, _ = strings.Cut(line, "\n")
	flags := " " + strings.TrimSpace(strings.TrimLeft(line, "\t :")) + " "
	has := func(names string) bool {
		for _, n := range strings.Fields(names) {
			if !strings.Contains(flags, " "+n+" ") {
				return false
			}
		}
		return true
	}
	level := 1
	for i, names := range []string{
		"cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
		"avx avx2 bmi1 bmi2 f16c fma abm movbe",
		"avx512f avx512bw avx512cd avx512dq avx512vl",
	} {
		if !has(names) {
			break
		}
		level = i + 2
	}
	if want, got := strings.Join(levels(level), " "), strings.Join(archs(), " "); got != want {
		t.Errorf("%s: expected %s", got, want)
	}
	if got := levels(3); strings.Join(got, " ") != "x86-64-v3 x86-64-v2 x86-64" {
		t.Errorf("levels(3): %v", got)
	}
}

func FuzzLocalShare(f *testing.F) {
	f.Add([]byte{}, uint64(0), uint64(1))
	f.Add(make([]byte, localBytes), uint64(1), uint64(1))
	f.Fuzz(func(t *testing.T, blob []byte, offset, n uint64) {
		if m, err := openLocal(blob, offset, n); err == nil {
			t.Errorf("opened %v", m)
		}
	})
}
