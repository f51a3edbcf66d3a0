package cuda

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

func TestInfo(t *testing.T) {
	d := open(t, 0)
	i := d.Info()
	if i.Device.String() != "cuda:0" || i.Name == "" || i.SMs < 1 || len(i.Archs) == 0 || i.Archs[len(i.Archs)-1] != "sm_80" {
		t.Errorf("%+v", i)
	}
	if id := d.UUID(); id == [16]byte{} {
		t.Error("no UUID")
	}
	if parts := strings.Split(d.PCI(), ":"); len(parts) != 3 {
		t.Errorf("PCI address %q: expected domain:bus:device.function", d.PCI())
	}
	free, total, err := d.MemoryInfo()
	if err != nil || free == 0 || free > total {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	if ok, err := d.Reaches(0); err != nil || !ok {
		t.Errorf("reaches itself: %v, %v", ok, err)
	}
	if v, err := Version(); err != nil || v < 11080 {
		t.Errorf("version %d, %v: expected at least 11080", v, err)
	}
}

func TestOpenRefusesIndex(t *testing.T) {
	open(t, 0)
	n, _ := Count()
	for _, i := range []int{-1, n} {
		if _, err := Open(i); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
			t.Errorf("%d: %v: expected ErrInvalid", i, err)
		}
	}
}

func TestAllocIsZeroedAndCopied(t *testing.T) {
	for name, opts := range map[string][]Option{"handles": nil, "legacy": {Legacy()}, "fabric": {Fabric()}} {
		t.Run(name, func(t *testing.T) {
			d := open(t, 0, opts...)
			const n = 3<<20 + 17
			m := alloc(t, d, n)
			got := bytes.Repeat([]byte{1}, n)
			check(t, d.ReadAt(got, m.Addr()))
			if !bytes.Equal(got, make([]byte, n)) {
				t.Fatal("not zeroed")
			}
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i * 7)
			}
			check(t, d.WriteAt(want, m.Addr()))
			check(t, d.ReadAt(got, m.Addr()))
			if !bytes.Equal(got, want) {
				t.Fatal("read something else than was written")
			}
			// Zeros last, in a part that neither begins nor ends with a page.
			for _, f := range []struct {
				at    int
				value byte
			}{{1, 9}, {70_001, 0}} {
				check(t, d.Fill(m.Addr()+uintptr(f.at), f.value, uint64(n-2*f.at)))
				copy(want[f.at:n-f.at], bytes.Repeat([]byte{f.value}, n-2*f.at))
			}
			check(t, d.ReadAt(got, m.Addr()))
			if !bytes.Equal(got, want) {
				t.Error("filled something else")
			}
			if m.Bytes() != n || m.HostAddr() != 0 || m.HostBytes() != nil {
				t.Errorf("%d bytes at %#x for the host", m.Bytes(), m.HostAddr())
			}
		})
	}
}

func TestAllocRefuses(t *testing.T) {
	d := open(t, 0)
	for _, n := range []uint64{0, 1<<46 + 1, ^uint64(0)} {
		if _, err := d.Alloc(n); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%d: %v: expected ErrInvalid", n, err)
		}
	}
	_, err := d.Alloc(1 << 44)
	var e *Error
	if !errors.Is(err, framework.ErrUnavailable) || !errors.As(err, &e) || !strings.Contains(err.Error(), "cuda:0 alloc 17592186044416 bytes") {
		t.Errorf("%v: expected ErrUnavailable from the driver", err)
	}
}

func kinds(shares []framework.Share) (all []string) {
	for _, s := range shares {
		all = append(all, string(s.Kind))
	}
	return all
}

func export(t testing.TB, m device.Memory) []framework.Share {
	t.Helper()
	shares, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { framework.Parcel{Shares: shares}.Close() })
	return shares
}

func find(t testing.TB, shares []framework.Share, kind framework.ShareKind) framework.Share {
	t.Helper()
	i := slices.IndexFunc(shares, func(s framework.Share) bool { return s.Kind == kind })
	if i < 0 {
		t.Fatalf("%v: expected a share of kind %s", kinds(shares), kind)
	}
	return shares[i]
}

func TestExports(t *testing.T) {
	d := open(t, 0)
	m := alloc(t, d, 100)
	if got := kinds(export(t, m)); !slices.Equal(got, []string{"local", "vmm"}) {
		t.Errorf("%v: expected local, vmm", got)
	}
	if d.facts.dma_buf != 0 {
		share, err := m.DMABuf()
		check(t, err)
		if share.Kind != framework.ShareDMABuf || share.FD == nil {
			t.Errorf("%+v", share)
		}
		share.Close()
		with := open(t, 0, DMABuf())
		if got := kinds(export(t, alloc(t, with, 100))); !slices.Equal(got, []string{"local", "vmm", "dma-buf"}) {
			t.Errorf("%v: expected a dma-buf at the end", got)
		}
	} else if _, err := m.DMABuf(); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("%v: expected ErrUnsupported", err)
	}
	old := open(t, 0, Legacy())
	if got := kinds(export(t, alloc(t, old, 100))); !slices.Equal(got, []string{"local", "legacy-ipc"}) {
		t.Errorf("%v: expected local, legacy-ipc", got)
	}
	fabric := open(t, 0, Fabric())
	got := kinds(export(t, alloc(t, fabric, 100)))
	if refused := fabric.FabricRefused() || fabric.facts.fabric == 0; slices.Contains(got, "fabric") == refused {
		t.Errorf("%v, refused %v", got, refused)
	}
}

func TestMapWithinTheProcess(t *testing.T) {
	d := open(t, 0)
	before := descriptors(t)
	m, err := d.Alloc(5 << 20)
	check(t, err)
	shares, err := m.Export()
	check(t, err)
	var all []device.Memory
	for i, s := range shares {
		// Not at a unit of anything.
		part := framework.Mapping{Shares: []framework.Share{s}, Offset: 2<<20 + 24, Bytes: 4096}
		if s.Kind == framework.ShareVMM {
			if _, err := d.Map(part); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "mapped whole") {
				t.Errorf("a part of a vmm share: %v: expected that allocations are mapped whole", err)
			}
			part.Bytes = 5<<20 - part.Offset // up to the end
		}
		p, err := d.Map(part)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		check(t, d.WriteAt([]byte{byte(i + 1)}, p.Addr()+4095))
		got := []byte{0}
		check(t, d.ReadAt(got, m.Addr()+2<<20+24+4095))
		if got[0] != byte(i+1) {
			t.Errorf("%s: a write is not seen", s.Kind)
		}
		if again, err := p.Export(); err != nil || again != nil {
			t.Errorf("%s: mapped memory exports %v, %v", s.Kind, again, err)
		}
		if same := p.Addr() == m.Addr()+2<<20+24; same != (s.Kind == framework.ShareLocal) {
			t.Errorf("%s: at %#x, memory at %#x", s.Kind, p.Addr(), m.Addr())
		}
	}
	check(t, m.Close()) // first: what was mapped stays
	for _, p := range all {
		check(t, d.WriteAt([]byte{1}, p.Addr()))
	}
	if _, err := m.Export(); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
	for _, p := range append(all, m) {
		check(t, p.Close())
	}
	if _, err := d.Map(framework.Mapping{Shares: shares[:1], Bytes: 1}); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
	framework.Parcel{Shares: shares}.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open: expected %d", after, before)
	}
}

// descriptors counts those that are left open by mistake if it grows.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}

func TestMapTellsEveryReason(t *testing.T) {
	d := open(t, 0)
	local := find(t, export(t, alloc(t, d, 4096)), framework.ShareLocal)
	foreign := framework.Share{Kind: framework.ShareLocal, Blob: bytes.Clone(local.Blob)}
	foreign.Blob[1] ^= 1
	old := find(t, export(t, alloc(t, open(t, 0, Legacy()), 4096)), framework.ShareLegacyIPC)
	_, err := d.Map(framework.Mapping{Bytes: 4096, Shares: []framework.Share{
		foreign, old, {Kind: framework.ShareFabric}, {Kind: framework.ShareDMABuf}, {Kind: framework.ShareVMM},
	}})
	if err == nil {
		t.Fatal("mapped")
	}
	for _, want := range []string{
		"local: unavailable: made by another process", "legacy-ipc: cuda:0 import: unsupported: the driver opens it in other processes only", "fabric: cuda:0 import: invalid: expected a handle of 64 bytes",
		"dma-buf: unsupported", "vmm: invalid: share without a descriptor", "cuda:0 map 4096 bytes",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	for name, m := range map[string]framework.Mapping{
		"no share":   {Bytes: 1},
		"too long":   {Shares: []framework.Share{local}, Bytes: 4097},
		"wraps":      {Shares: []framework.Share{local}, Offset: ^uint64(0), Bytes: 2},
		"empty":      {Shares: []framework.Share{local}},
		"short":      {Shares: []framework.Share{{Kind: framework.ShareLocal, Blob: local.Blob[:5]}}, Bytes: 1},
		"old, short": {Shares: []framework.Share{{Kind: framework.ShareLegacyIPC, Blob: old.Blob[:9]}}, Bytes: 1},
	} {
		if p, err := d.Map(m); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v, %v: expected ErrInvalid", name, p, err)
		}
	}
}

// Host memory that another process, or this one, made: kernels write where the
// process reads, as the wait control of a communicator needs it.
func TestMapHostMemory(t *testing.T) {
	d := open(t, 0)
	h, err := host.Open()
	check(t, err)
	m, err := h.Alloc(10000)
	check(t, err)
	closeAfter(t, m)
	p, err := d.Map(framework.Mapping{Shares: export(t, m), Offset: 4104, Bytes: 5000})
	check(t, err)
	closeAfter(t, p)
	k, s := kernelOf(t, load(t, d), "bump"), stream(t, d)
	check(t, run(k, device.Launch{Grid: 1, Block: 1, Stream: s}, &args{p.Addr() + 8, 77}))
	check(t, d.Sync(s))
	if got := device.Bytes(m)[4104+8]; got != 77 {
		t.Errorf("%d: expected what the kernel wrote, 77", got)
	}
	if got := p.(*Memory).HostBytes(); len(got) != 5000 || got[8] != 77 {
		t.Errorf("%d bytes for the host", len(got))
	}
}

func TestAllocHost(t *testing.T) {
	d := open(t, 0)
	m, err := d.AllocHost(100)
	check(t, err)
	closeAfter(t, m)
	if shares, err := m.Export(); err != nil || shares != nil {
		t.Errorf("%v, %v: expected no shares", shares, err)
	}
	v := alloc(t, d, 100)
	s := stream(t, d)
	copy(m.HostBytes(), "pinned")
	check(t, d.Copy(s, v.Addr(), m.Addr(), 6))
	check(t, d.Sync(s))
	got := make([]byte, 6)
	check(t, d.ReadAt(got, v.Addr()))
	if string(got) != "pinned" {
		t.Errorf("%q", got)
	}
	if _, err := d.AllocHost(0); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected ErrInvalid", err)
	}
}

func TestWrap(t *testing.T) {
	d := open(t, 0, Legacy())
	inner := alloc(t, d, 1<<20)
	check(t, d.WriteAt([]byte{5}, inner.Addr()+4096))
	w, err := d.Wrap(inner.Addr()+4096, 100)
	check(t, err)
	closeAfter(t, w)
	if got := kinds(export(t, w)); !slices.Equal(got, []string{"local", "legacy-ipc"}) {
		t.Errorf("%v: expected local, legacy-ipc", got)
	}
	p, err := d.Map(framework.Mapping{Shares: export(t, w), Offset: 4, Bytes: 96})
	check(t, err)
	closeAfter(t, p)
	if p.Addr() != inner.Addr()+4100 {
		t.Errorf("at %#x: expected %#x", p.Addr(), inner.Addr()+4100)
	}
	n := make([]byte, 8)
	for name, c := range map[string]struct {
		addr  uintptr
		bytes uint64
	}{
		"too long": {inner.Addr(), 1 << 40}, "Go's memory": {uintptr(unsafe.Pointer(&n[0])), 8}, "nothing": {4096, 8}, "empty": {inner.Addr(), 0},
	} {
		if _, err := d.Wrap(c.addr, c.bytes); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v: expected ErrInvalid", name, err)
		}
	}
	// Memory behind handles is shared from its start only.
	v := alloc(t, d2(t), 4<<20)
	whole, err := d.Wrap(v.Addr(), 4<<20)
	check(t, err)
	closeAfter(t, whole)
	part, err := d.Wrap(v.Addr()+4096, 100)
	check(t, err)
	closeAfter(t, part)
	if a, b := kinds(export(t, whole)), kinds(export(t, part)); !slices.Equal(a, []string{"local", "vmm"}) || !slices.Equal(b, []string{"local"}) {
		t.Errorf("%v and %v: expected local, vmm and local", a, b)
	}
}

func d2(t *testing.T) *Device { return open(t, 0) }

func TestClosedDevice(t *testing.T) {
	d := open(t, 0)
	m := alloc(t, d, 8)
	s, err := d.NewStream()
	check(t, err)
	check(t, d.Close())
	_, err1 := d.Alloc(1)
	_, err2 := d.Map(framework.Mapping{})
	_, err3 := d.Object(framework.Object{Kind: framework.ObjectMulticast}, nil)
	_, err4 := d.Load(nil)
	_, err5 := d.NewStream()
	_, err6 := d.Query(s)
	for i, err := range []error{err1, err2, err3, err4, err5, err6, d.Copy(s, 1, 2, 3), d.Write(s, 8, 1), d.Sync(s), d.WriteAt([]byte{1}, m.Addr())} {
		if !errors.Is(err, framework.ErrClosed) {
			t.Errorf("%d: %v: expected ErrClosed", i, err)
		}
	}
	// The memory lives on: another device sees it, and it can be freed.
	if v := word(t, open(t, 0), m.Addr()); v != 0 {
		t.Errorf("%d: expected 0", v)
	}
	check(t, d.CloseStream(s))
}
