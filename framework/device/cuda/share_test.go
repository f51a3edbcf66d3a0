package cuda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// roles are what this program does when a test starts it.
var roles = map[string]func() error{"map": mapRole, "fault": faultRole, "without": withoutRole, "hidden": hiddenRole}

// order is the share that a process has to map.
type order struct {
	Device int
	Kind   framework.ShareKind
	Blob   []byte
	Offset uint64
	Bytes  uint64
	Expect uint64 // first word
	Add    uint64 // to the second
}

// start runs this program in a role, with an input and a descriptor.
func start(t *testing.T, role string, input any, f *os.File) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(input)
	check(t, err)
	exe, err := os.Executable()
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	cmd.Stdin = bytes.NewReader(text)
	if f != nil {
		cmd.ExtraFiles = []*os.File{f}
	}
	return cmd.CombinedOutput()
}

// mapRole maps the share of its order, and uses it by copy engine and by kernel.
func mapRole() error {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	d, err := Open(o.Device)
	if err != nil {
		return err
	}
	s := framework.Share{Kind: o.Kind, Blob: o.Blob}
	if o.Kind.HasFD() {
		s.FD = os.NewFile(3, "share")
	}
	p, err := d.Map(framework.Mapping{Shares: []framework.Share{s}, Offset: o.Offset, Bytes: o.Bytes})
	if err != nil {
		return err
	}
	if v, err := readWord(d, p.Addr()); err != nil || v != o.Expect {
		return fmt.Errorf("word %d, %v: expected %d", v, err, o.Expect)
	}
	m, err := d.Load([]byte(testPTX))
	if err != nil {
		return err
	}
	k, err := m.Kernel("bump")
	if err != nil {
		return err
	}
	st, err := d.NewStream()
	if err != nil {
		return err
	}
	err = errors.Join(
		run(k, device.Launch{Grid: 1, Block: 32, Stream: st}, &args{p.Addr() + 8, o.Add}),
		d.Copy(st, p.Addr()+16, p.Addr()+8, 8), // within the peer's memory
		d.Write(st, p.Addr()+24, o.Add+1),
		d.Sync(st), d.CloseStream(st), m.Close(), p.Close(), d.Close())
	return err
}

// Memory of one process is mapped by another one, on another device if there is
// one, in each of the ways that there are.
func TestShareBetweenProcesses(t *testing.T) {
	d := open(t, 0)
	load(t, d) // so that the kernels are there for the other process
	old := open(t, 0, Legacy())
	oldMemory := alloc(t, old, 3<<20)
	wrapped, err := old.Wrap(oldMemory.Addr()+1<<20, 1<<20)
	check(t, err)
	closeAfter(t, wrapped)
	h, err := host.Open()
	check(t, err)
	memfd, err := h.Alloc(2 << 20)
	check(t, err)
	closeAfter(t, memfd)
	onDevice, err := d.Map(framework.Mapping{Shares: export(t, memfd), Bytes: 2 << 20})
	check(t, err)
	closeAfter(t, onDevice)

	n, err := Count()
	check(t, err)
	for _, c := range []struct {
		kind   framework.ShareKind
		memory device.Memory // that exports
		addr   uintptr       // where this process sees it
	}{
		{framework.ShareVMM, alloc(t, d, 5<<20), 0},
		{framework.ShareLegacyIPC, oldMemory, 0},
		{framework.ShareLegacyIPC, wrapped, 0},
		{framework.ShareMemFD, memfd, onDevice.Addr()},
	} {
		for dev := range min(n, 2) {
			const offset = 64 << 10
			bytes := uint64(128 << 10)
			if c.kind == framework.ShareVMM {
				bytes = c.memory.Bytes() - offset // these are mapped up to their end
			}
			share := find(t, export(t, c.memory), c.kind)
			addr := c.memory.Addr()
			if c.addr != 0 {
				addr = c.addr
			}
			first := uint64(0x0123456789abcdef) + uint64(dev)
			check(t, d.WriteAt(le(first, 100), addr+offset))
			o := order{dev, c.kind, share.Blob, offset, bytes, first, 11}
			if out, err := start(t, "map", o, share.FD); err != nil {
				if ok, _ := d.Reaches(dev); !ok {
					continue // no peer access: the refusal is right
				}
				t.Errorf("%s on device %d: %v: %s", c.kind, dev, err, out)
				continue
			}
			for i, want := range []uint64{first, 111, 111, 12} {
				if got := word(t, d, addr+offset+uintptr(8*i)); got != want {
					t.Errorf("%s on device %d: word %d is %d: expected %d", c.kind, dev, i, got, want)
				}
			}
		}
	}
}

func le(words ...uint64) (b []byte) {
	for _, w := range words {
		for i := range 8 {
			b = append(b, byte(w>>(8*i)))
		}
	}
	return b
}

// A share from another process is checked before the driver sees it.
func TestMapOfNonsense(t *testing.T) {
	d := open(t, 0)
	f, err := os.CreateTemp(t.TempDir(), "")
	check(t, err)
	defer f.Close()
	blob := find(t, export(t, alloc(t, open(t, 0, Legacy()), 4096)), framework.ShareLegacyIPC).Blob
	foreign := bytes.Clone(blob)
	foreign[1] ^= 1
	for name, m := range map[string]framework.Mapping{
		"file as memory":   {Shares: []framework.Share{{Kind: framework.ShareVMM, FD: f}}, Bytes: 4096},
		"file as memfd":    {Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: f}}, Bytes: 4096},
		"behind the end":   {Shares: []framework.Share{{Kind: framework.ShareLegacyIPC, Blob: foreign}}, Offset: 4096, Bytes: 1},
		"of another world": {Shares: []framework.Share{{Kind: framework.ShareLegacyIPC, Blob: append(foreign[:17:17], make([]byte, len(foreign)-17)...)}}, Bytes: 1},
	} {
		if p, err := d.Map(m); err == nil {
			t.Errorf("%s: mapped at %#x", name, p.Addr())
		} else if framework.Class(err) == nil {
			t.Errorf("%s: %v: expected an error with a class", name, err)
		}
	}
}

// Devices of one process use each other's memory where it is.
func TestShareBetweenDevices(t *testing.T) {
	a, b := open(t, 0), open(t, 1)
	for name, owner := range map[string]*Device{"handles": a, "legacy": open(t, 0, Legacy())} {
		m := alloc(t, owner, 1<<20)
		p, err := b.Map(framework.Mapping{Shares: export(t, m)[:1], Offset: 8, Bytes: 4096})
		if ok, _ := b.Reaches(0); !ok {
			if !errors.Is(err, framework.ErrUnsupported) {
				t.Errorf("%s: %v: expected ErrUnsupported", name, err)
			}
			continue
		}
		check(t, err)
		k, s := kernelOf(t, load(t, b), "bump"), stream(t, b)
		check(t, run(k, device.Launch{Grid: 2, Block: 32, Stream: s}, &args{p.Addr(), 21}))
		check(t, b.Sync(s))
		if got := word(t, a, m.Addr()+8); got != 42 {
			t.Errorf("%s: %d: expected 42", name, got)
		}
		check(t, p.Close())
	}
}

// Copy engines reach what is mapped, in both directions.
func TestCopyBetweenDevices(t *testing.T) {
	a, b := open(t, 0), open(t, 1)
	if ok, err := b.Reaches(0); err != nil || !ok {
		t.Skipf("needs peer access between two GPUs: %v", err)
	}
	const n = 8 << 20
	own, far := alloc(t, b, 2*n), alloc(t, a, n)
	p, err := b.Map(framework.Mapping{Shares: export(t, far), Bytes: n})
	check(t, err)
	closeAfter(t, p)
	want := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	check(t, b.WriteAt(want, own.Addr()))
	s := stream(t, b)
	check(t, b.Copy(s, p.Addr(), own.Addr(), n))
	check(t, b.Copy(s, own.Addr()+n, p.Addr(), n))
	check(t, b.Sync(s))
	for _, c := range []struct {
		d    *Device
		addr uintptr
	}{{a, far.Addr()}, {b, own.Addr() + n}} {
		got := make([]byte, n)
		check(t, c.d.ReadAt(got, c.addr))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the copy differs", c.d.Info().Device)
		}
	}
}

// faultRole lets a kernel store to an address without memory.
func faultRole() error {
	d, err := Open(0)
	if err != nil {
		return err
	}
	m, err := d.Load([]byte(testPTX))
	if err != nil {
		return err
	}
	k, err := m.Kernel("bump")
	if err != nil {
		return err
	}
	if err := run(k, device.Launch{Grid: 1, Block: 1}, &args{0x1000, 1}); err != nil {
		return err
	}
	for i, err := range []error{d.Sync(0), d.Sync(0), d.Fill(0x1000, 1, 1)} {
		var e *Error
		if !errors.As(err, &e) || !e.Lost() || e.Device.String() != "cuda:0" || !errors.Is(err, framework.ErrUnavailable) {
			return fmt.Errorf("%d: %v: expected an error that names cuda:0 as lost", i, err)
		}
	}
	return nil
}

// A kernel that goes astray loses the device, and the error says which, every time.
func TestLostDevice(t *testing.T) {
	load(t, open(t, 0)) // the kernels are there for the other process
	if out, err := start(t, "fault", nil, nil); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Shares come from other processes: nothing in them is trusted.
func FuzzShares(f *testing.F) {
	f.Add([]byte{})
	const legacyBytes = 97
	f.Add(append([]byte{1}, make([]byte, legacyBytes-1)...))
	f.Add(append([]byte{1}, bytes.Repeat([]byte{0xff}, legacyBytes-1)...))
	f.Fuzz(func(t *testing.T, blob []byte) {
		start, size, ok := parseLegacy(blob)
		if ok && (len(blob) != legacyBytes || start > 1<<46 || size > 1<<46) {
			t.Errorf("%d bytes at %d, in a share of %d, are accepted", size, start, len(blob))
		}
	})
}

// Objects that are made and closed, in any order, leave nothing.
func TestNothingLeaks(t *testing.T) {
	d := open(t, 0)
	var locals []framework.Share
	round := func() {
		m, err := d.Alloc(8 << 20)
		check(t, err)
		shares, err := m.Export()
		check(t, err)
		var maps []device.Memory
		for _, s := range shares {
			p, err := d.Map(framework.Mapping{Shares: []framework.Share{s}, Bytes: 8 << 20})
			check(t, err)
			maps = append(maps, p)
		}
		_, err = d.Map(framework.Mapping{Shares: shares, Offset: 64 << 20, Bytes: 1})
		if err == nil {
			t.Fatal("mapped what is behind the end")
		}
		locals = append(locals, framework.Share{Kind: framework.ShareLocal, Blob: shares[0].Blob})
		framework.Parcel{Shares: shares}.Close()
		h, err := d.AllocHost(1 << 20)
		check(t, err)
		check(t, errors.Join(maps[1].Close(), m.Close(), maps[0].Close(), h.Close()))
	}
	round() // the driver makes itself at home
	fds := descriptors(t)
	free, _, err := d.MemoryInfo()
	check(t, err)
	for range 50 {
		round()
	}
	if n := descriptors(t); n != fds {
		t.Errorf("%d descriptors: expected %d", n, fds)
	}
	// Others may use the device, too; 50 rounds would leave 400 MiB or more.
	if now, _, err := d.MemoryInfo(); err != nil || now+200<<20 < free {
		t.Errorf("%d bytes are free, %v: expected %d", now, err, free)
	}
	for _, s := range locals {
		if _, err := d.Map(framework.Mapping{Shares: []framework.Share{s}, Bytes: 1}); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("a share of memory that was closed: %v: expected ErrClosed", err)
		}
	}
}

// Memory is mapped and closed by many at once, while its owner closes it.
func TestConcurrentMapAndClose(t *testing.T) {
	d := open(t, 0)
	for range 20 {
		m, err := d.Alloc(4096)
		check(t, err)
		local := find(t, export(t, m), framework.ShareLocal)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				p, err := d.Map(framework.Mapping{Shares: []framework.Share{local}, Bytes: 8})
				if errors.Is(err, framework.ErrClosed) {
					return // the owner was faster
				}
				if err == nil {
					err = errors.Join(d.WriteAt([]byte{1}, p.Addr()), p.Close(), p.Close())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}
