package ring

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const fuzzName = "t-ring-fuzz"

// foreign makes a memfd as another process might send it: content at its start,
// then zeros up to size, or cut there, with the given seals.
func foreign(t testing.TB, content []byte, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate(fuzzName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), fuzzName)
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

// header is the start of a ring, and its first triggers.
func header(magic uint64, version, slots uint32, tail, head uint64, triggers ...uint64) []byte {
	b := make([]byte, kernel.RingTriggers)
	binary.LittleEndian.PutUint64(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], slots)
	binary.LittleEndian.PutUint64(b[64:], tail)
	binary.LittleEndian.PutUint64(b[192:], head)
	for _, word := range triggers {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	return b
}

// FuzzOpen gives Open memfds of every kind. It takes what is a ring by the layout,
// and nothing else; what it took can be used without a fault; and whatever it did
// not take leaves no mapping behind.
func FuzzOpen(f *testing.F) {
	const good, page = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL, 4096
	full := header(kernel.RingMagic, kernel.RingVersion, 8, 3, 5, 1, 1<<63, 2, 1<<63|7)
	f.Add(full, uint32(2*page), good)
	f.Add(full, uint32(page+8*16), good)                                                                    // to the byte
	f.Add(full, uint32(page+8*16-1), good)                                                                  // one too few
	f.Add(full, uint32(page), good)                                                                         // no triggers
	f.Add(full, uint32(64), good)                                                                           // less than a header
	f.Add(full, uint32(0), good)                                                                            // nothing
	f.Add(full, uint32(2*page), 0)                                                                          // its maker may cut it
	f.Add(full, uint32(2*page), good|unix.F_SEAL_WRITE)                                                     // cannot be completed
	f.Add(header(kernel.RingMagic+1, kernel.RingVersion, 8, 0, 0), uint32(2*page), good)                    // another magic
	f.Add(header(bits.ReverseBytes64(kernel.RingMagic), kernel.RingVersion, 8, 0, 0), uint32(2*page), good) // another byte order
	f.Add(header(kernel.RingMagic, kernel.RingVersion+1, 8, 0, 0), uint32(2*page), good)                    // a later version
	f.Add(header(kernel.RingMagic, kernel.RingVersion, 0, 0, 0), uint32(2*page), good)                      // no slots
	f.Add(header(kernel.RingMagic, kernel.RingVersion, 24, 0, 0), uint32(2*page), good)                     // no power of two
	f.Add(header(kernel.RingMagic, kernel.RingVersion, 2*MaxSlots, 0, 0), uint32(2*page), good)             // too many
	f.Add(header(kernel.RingMagic, kernel.RingVersion, 1<<31, 0, 0), uint32(2*page), good)                  // and more
	f.Add(header(kernel.RingMagic, kernel.RingVersion, 256, ^uint64(0), 1<<62), uint32(2*page), good)       // wild counts
	f.Fuzz(func(t *testing.T, content []byte, size uint32, seals int) {
		size %= 1 << 20
		content = content[:min(len(content), int(size))]
		file := foreign(t, content, int64(size), seals&0x1f)
		defer file.Close()
		r, err := Open(framework.Share{Kind: framework.ShareMemFD, FD: file})
		if want := isRing(content, uint64(size), seals); want != (err == nil) {
			t.Fatalf("%d bytes with seals %#x: error %v, expected to be taken: %v", size, seals&0x1f, err, want)
		}
		if err != nil {
			if !errors.Is(err, framework.ErrInvalid) {
				t.Fatalf("%v: expected ErrInvalid", err)
			}
		} else {
			exercise(t, r)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(maps), fuzzName) {
			t.Fatal("a mapping is left")
		}
	})
}

// isRing says by the layout alone whether Open has to take a memfd.
func isRing(content []byte, size uint64, seals int) bool {
	if size < kernel.RingTriggers || seals&unix.F_SEAL_SHRINK == 0 || seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return false
	}
	b := append(content[:len(content):len(content)], make([]byte, 16)...) // zeros follow
	slots := binary.LittleEndian.Uint32(b[12:])
	return string(b[:8]) == "SMPPRING" && binary.LittleEndian.Uint32(b[8:]) == 1 &&
		slots >= 1 && slots <= 1<<20 && slots&(slots-1) == 0 && size >= 4096+16*uint64(slots)
}

// exercise does to a ring of unknown content what a consumer and a producer do.
func exercise(t *testing.T, r *Ring) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		_, tail := r.Base()
		if tr, pos, ok := r.Poll(); ok {
			if pos != tail || tr.Snd>>63 != 0 {
				t.Fatalf("trigger %+v at %d, expected one at %d without its commit bit", tr, pos, tail)
			}
			r.Pop()
			if _, now := r.Base(); now != tail+1 {
				t.Fatalf("position %d after %d", now, tail)
			}
		}
		pos, err := r.PushContext(canceled, kernel.Trigger{Fst: 1})
		if err == nil {
			r.Complete(kernel.RingFlushWords-1, pos)
		}
	}
	_, _ = r.Depth(), r.Err()
	r.Park(time.Nanosecond)
	r.Fail(framework.ErrPeer)
	if r.Err() == nil {
		t.Fatal("the ring goes on after Fail")
	}
}
