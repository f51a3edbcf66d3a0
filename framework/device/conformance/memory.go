package conformance

import (
	"bytes"
	"regexp"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

func openTests() []test {
	return []test{
		{"open/info", "a device has a name, architectures and processors", func(t *T) {
			d := t.device()
			i := d.Info()
			if i.Name == "" || len(i.Archs) == 0 || i.SMs < 1 || i.Device.Index != t.o.Index {
				t.errorf("info is %+v", i)
			}
			for _, a := range i.Archs {
				if !regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`).MatchString(a) {
					t.errorf("architecture %q: expected lower-case letters, digits, - and _", a)
				}
			}
		}},
		{"open/twice", "a device may be opened several times, and each is closed by itself", func(t *T) {
			a, b := t.device(), t.device()
			m := b.alloc(4096)
			t.must(a.Close(), "close the first")
			b.write(m.Addr(), pattern(1, 4096))
			t.same(b.read(m.Addr(), 4096), pattern(1, 4096), "memory of the second")
		}},
		{"open/index", "an index beyond the devices is refused", func(t *T) {
			n, err := t.o.Backend.Count()
			t.must(err, "count")
			_, err = t.o.Backend.Open(n, "")
			t.refused(err, "open", framework.ErrInvalid)
		}},
		{"open/options", "an unknown option is refused", func(t *T) {
			d, err := t.o.Backend.Open(t.o.Index, "no-such-option=1\n")
			if err == nil {
				_ = d.Close()
			}
			t.refused(err, "open with no-such-option=1", framework.ErrInvalid)
		}},
	}
}

// hosted is memory of the host, under the address of the process.
type hosted struct{ device.Memory }

func (h hosted) Addr() uintptr { return h.Memory.(*native.Memory).HostAddr() }

func memoryTests() []test {
	return []test{
		{"memory/zeroed", "memory is zeroed, also where it was used before", func(t *T) {
			d := t.device()
			const n = 300_000
			for round := range 3 {
				m, err := d.Alloc(n)
				t.must(err, "alloc")
				t.same(d.read(m.Addr(), n), make([]byte, n), "new memory")
				d.write(m.Addr(), pattern(round, n))
				t.must(m.Close(), "free")
			}
		}},
		{"memory/sizes", "every size is given, at addresses that are multiples of 256 and do not overlap", func(t *T) {
			d := t.device()
			sizes := []uint64{1, 7, 8, 4095, 4096, 4097, 1 << 16, 3<<20 + 5}
			var at []uintptr
			for i, n := range sizes {
				m := d.alloc(n)
				at = append(at, m.Addr())
				if m.Addr()%256 != 0 || m.Bytes() != n {
					t.errorf("%d bytes at %#x, said to be %d", n, m.Addr(), m.Bytes())
				}
				d.write(m.Addr(), pattern(i, int(n)))
			}
			for i, n := range sizes {
				t.same(d.read(at[i], int(n)), pattern(i, int(n)), "memory beside other memory")
			}
		}},
		{"memory/too-much", "lack of memory is an error of alloc, and leaves the device as it was", func(t *T) {
			d := t.device()
			_, total, err := d.MemoryInfo()
			t.must(err, "memory info")
			if m, err := d.Alloc(max(total, 1<<30) * 4); err == nil {
				_ = m.Close()
				t.errorf("four times of %d bytes were given", total)
			} else {
				t.refused(err, "alloc", framework.ErrUnavailable)
			}
			d.write(d.alloc(4096).Addr(), pattern(1, 4096))
		}},
		{"memory/given-back", "freed memory can be had again", func(t *T) {
			d := t.device()
			free, total, err := d.MemoryInfo()
			t.must(err, "memory info")
			if free == 0 || free > total {
				t.errorf("memory info: %d of %d", free, total)
			}
			for range 64 {
				m, err := d.Alloc(max(min(free/8, 64<<20), 1))
				t.must(err, "alloc, after as much was freed")
				t.must(m.Close(), "free")
			}
		}},
		{"memory/data", "memory for data is zeroed, also where it was used before, and shared as other memory is", func(t *T) {
			d := t.device()
			const n = 300_000
			for round := range 3 {
				m, err := d.AllocData(n)
				t.must(err, "alloc for data")
				if m.Addr()%256 != 0 || m.Bytes() != n {
					t.errorf("%d bytes at %#x, said to be %d: expected a multiple of 256", n, m.Addr(), m.Bytes())
				}
				t.same(d.read(m.Addr(), n), make([]byte, n), "new memory")
				d.write(m.Addr(), pattern(round, n))
				for _, s := range t.ownShares(m) {
					if t.o.Child != nil {
						t.child(order{Share: s, Bytes: n, Expect: round, Write: round + 10})
						t.same(d.read(m.Addr(), n), pattern(round+10, n), "what the other process wrote through "+string(s.Kind))
						d.write(m.Addr(), pattern(round, n))
					}
				}
				t.must(m.Close(), "free")
			}
		}},
		{"memory/copies-of-the-host", "upload, download and fill take any place and any length", func(t *T) {
			d := t.device()
			m := d.alloc(10_000)
			want := make([]byte, 10_000)
			for i, r := range [][2]int{{0, 10_000}, {1, 1}, {4095, 2}, {4097, 3000}, {9999, 1}} {
				d.write(m.Addr()+uintptr(r[0]), pattern(i, r[1]))
				copy(want[r[0]:], pattern(i, r[1]))
			}
			t.must(d.Fill(m.Addr()+101, 0xa5, 999), "fill")
			copy(want[101:], bytes.Repeat([]byte{0xa5}, 999))
			t.same(d.read(m.Addr(), 10_000), want, "memory")
			t.same(d.read(m.Addr()+4001, 777), want[4001:4778], "a part of it")
		}},
		{"memory/local", "other users within the process have it under its address, and may outlive its owner", func(t *T) {
			d := t.device()
			m, err := d.Alloc(8192)
			t.must(err, "alloc")
			shares, err := m.Export()
			t.must(err, "export")
			defer framework.Parcel{Shares: shares}.Close()
			other := t.device()
			user, err := other.Map(framework.Mapping{Shares: shares[:1], Offset: 4096, Bytes: 4096})
			t.must(err, "map within the process")
			t.cleanup(user.Close, "end the use")
			if user.Addr() != m.Addr()+4096 {
				t.errorf("address %#x within memory at %#x: expected %#x", user.Addr(), m.Addr(), m.Addr()+4096)
			}
			t.must(m.Close(), "free")
			other.write(user.Addr(), pattern(2, 4096))
			t.same(other.read(user.Addr(), 4096), pattern(2, 4096), "memory whose owner has closed it")
		}},
		{"memory/peers", "devices of one process that reach each other use each other's memory", func(t *T) {
			n, err := t.o.Backend.Count()
			t.must(err, "count")
			t.needs(n > 1, "only one device")
			d, peer := t.device(), t.open((t.o.Index+1)%n)
			can, err := peer.Reaches(t.o.Index)
			t.must(err, "peer access")
			t.needs(can, "no peer access")
			m := d.alloc(4096)
			d.write(m.Addr(), pattern(3, 4096))
			shares, err := m.Export()
			t.must(err, "export")
			defer framework.Parcel{Shares: shares}.Close()
			far, err := peer.Map(framework.Mapping{Shares: shares[:1], Bytes: 4096})
			t.must(err, "map memory of the other device")
			t.cleanup(far.Close, "unmap")
			t.same(peer.read(far.Addr(), 4096), pattern(3, 4096), "memory of the other device")
		}},
		{"memory/registered", "a file that the host has mapped is the same memory for the device", func(t *T) {
			d := t.device()
			f, err := memfd.New("conformance", 3*4096, memfd.Options{})
			t.must(err, "memory of the host")
			t.cleanup(f.Close, "close memory of the host")
			m, err := d.Map(framework.Mapping{Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: f.File()}}, Offset: 4096 + 8, Bytes: 4096})
			if err != nil {
				t.needs(false, "memory of the host: "+err.Error())
			}
			t.cleanup(m.Close, "unregister")
			copy(f.Bytes()[4096+8:], pattern(4, 4096))
			t.same(d.read(m.Addr(), 4096), pattern(4, 4096), "what the host wrote")
			d.write(m.Addr(), pattern(5, 4096))
			t.same(f.Bytes()[4096+8:4096+8+4096], pattern(5, 4096), "what the device wrote")
		}},
		{"memory/hosted", "memory of the host serves as the device's own, and is shared by its descriptor", func(t *T) {
			opened, err := t.o.Backend.Open(t.o.Index, t.o.Options, native.Hosted())
			t.must(err, "open with memory of the host")
			t.cleanup(opened.Close, "close the device")
			m, err := opened.Alloc(3*4096 + 8)
			if err != nil {
				t.needs(false, "memory of the host: "+err.Error())
			}
			t.cleanup(m.Close, "free memory")
			shares, err := m.Export()
			t.must(err, "export")
			t.cleanup(framework.Parcel{Shares: shares}.Close, "close shares")
			if len(shares) != 1 || shares[0].Kind != framework.ShareMemFD {
				t.errorf("shares %v: expected a memfd alone", shares)
				return
			}
			d := t.device()
			far, err := d.Map(framework.Mapping{Shares: shares, Offset: 4096, Bytes: 4096})
			t.must(err, "map it on the device as others have it")
			t.cleanup(far.Close, "unmap")
			t.must(opened.(transfer).WriteAt(pattern(6, 4096), m.Addr()+4096), "upload")
			t.same(d.read(far.Addr(), 4096), pattern(6, 4096), "memory of the host")
			t.same(device.Bytes(hosted{m})[4096:8192], pattern(6, 4096), "what the process sees")
		}},
		{"memory/wrapped", "the driver knows its memory by any address in it, and refuses others", func(t *T) {
			d := t.device()
			m := d.alloc(1 << 16)
			w, err := d.any.(device.Wrapper).WrapMemory(m.Addr()+8192, 4096)
			if err != nil {
				t.needs(false, "ranges: "+err.Error())
			}
			if w.Addr() != m.Addr()+8192 || w.Bytes() != 4096 {
				t.errorf("%d bytes at %#x were wrapped as %d at %#x", 4096, m.Addr()+8192, w.Bytes(), w.Addr())
			}
			t.must(w.Close(), "end the use")
			heap := make([]byte, 64)
			_, err = d.Wrap(addressOf(heap), 64)
			t.refused(err, "wrap memory of the heap", framework.ErrInvalid)
			_, err = d.Wrap(m.Addr(), 1<<40)
			t.refused(err, "wrap beyond the end", framework.ErrInvalid)
		}},
		{"memory/placed", "an allocation is mapped at addresses that were reserved, whole, by each of its shares", func(t *T) {
			d := t.device()
			m := d.alloc(4096)
			whole, offset, unit, err := d.Allocation(m.Addr(), 4096)
			if err != nil {
				t.needs(false, "places: "+err.Error())
			}
			t.cleanup(whole.Close, "end the use")
			shares, err := whole.Export()
			t.must(err, "export")
			t.cleanup(framework.Parcel{Shares: shares}.Close, "close shares")
			stride := (whole.Bytes() + unit - 1) / unit * unit
			space, err := d.Arrange(len(shares), stride)
			t.must(err, "reserve addresses")
			t.cleanup(space.Close, "give addresses back")
			for i, s := range shares {
				at := space.Base() + uintptr(i)*uintptr(stride)
				p, err := space.Put(i, 0, framework.Mapping{Shares: shares[i : i+1], Bytes: whole.Bytes()})
				if err != nil {
					t.errorf("place the %s share: %v", s.Kind, err)
					continue
				}
				t.cleanup(p.Close, "end a mapping")
				if p.Addr() != at {
					t.errorf("the %s share is at %#x: expected %#x", s.Kind, p.Addr(), at)
				}
				d.write(p.Addr()+uintptr(offset), pattern(i, 4096))
				t.same(d.read(m.Addr(), 4096), pattern(i, 4096), "what was written through the "+string(s.Kind)+" share")
			}
		}},
		{"memory/view", "words that the host stores through a view arrive in memory of the device", func(t *T) {
			d := t.device()
			m := d.alloc(1 << 16)
			v, err := d.MapForHost(m)
			if err != nil {
				t.needs(false, "views: "+err.Error())
			}
			for i := range uintptr(64) {
				t.must(v.Store(m.Addr()+8*i, 1<<63|uint64(i)), "store")
			}
			t.must(v.Settle(), "settle")
			for i := range uintptr(64) {
				if got := d.word(m.Addr() + 8*i); got != 1<<63|uint64(i) {
					t.errorf("word %d is %#x", i, got)
				}
			}
			t.must(v.Close(), "close the view")
		}},
	}
}
