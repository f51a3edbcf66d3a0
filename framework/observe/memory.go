package observe

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/filelimit"
)

// memory is the regions of several ranks, in one file without a name in the file system.
type memory struct {
	file  *os.File
	bytes []byte
}

// fileName begins the name by which Find knows such a file.
const fileName = "mscclpp-observe"

// newMemory makes regions. Nothing of them takes memory before it is written to.
func newMemory(regions int) (*memory, error) {
	if err := filelimit.Check(uint64(regions) * RegionBytes); err != nil {
		return nil, fmt.Errorf("observe: %w: %w", framework.ErrUnavailable, err)
	}
	fd, err := unix.MemfdCreate(fileName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("observe: memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), fileName)
	if err := unix.Ftruncate(fd, int64(regions)*RegionBytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("observe: memory of %d ranks: %w", regions, err)
	}
	return mapFile(f, unix.PROT_READ|unix.PROT_WRITE)
}

// openMemory opens regions of another process. No other user can truncate its file: it belongs to this one.
func openMemory(path string, write bool) (*memory, error) {
	flags, protection := os.O_RDONLY, unix.PROT_READ
	if write {
		flags, protection = os.O_RDWR, protection|unix.PROT_WRITE
	}
	path = shown(path)
	// The name is looked at before the file is opened: opening another kind of file could wait.
	if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "/memfd:"+fileName) {
		return nil, fmt.Errorf("observe: %s: %w: expected memory in which ranks are observed", path, framework.ErrInvalid)
	}
	f, err := os.OpenFile(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	return mapFile(f, protection)
}

// mapFile maps all of a file, which it closes after an error.
func mapFile(f *os.File, protection int) (*memory, error) {
	info, err := f.Stat()
	if err == nil && (info.Size() == 0 || info.Size()%RegionBytes != 0) {
		err = fmt.Errorf("%w: %d bytes: expected regions of %d: it is of another version", framework.ErrInvalid, info.Size(), RegionBytes)
	}
	var b []byte
	if err == nil {
		b, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), protection, unix.MAP_SHARED)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("observe: %w", err)
	}
	return &memory{file: f, bytes: b}, nil
}

func (m *memory) regions() int { return len(m.bytes) / RegionBytes }

func (m *memory) region(i int) region {
	return region{unsafe.Pointer(&m.bytes[i*RegionBytes])}
}

func (m *memory) close() error {
	err := unix.Munmap(m.bytes)
	m.bytes = nil
	if e := m.file.Close(); err == nil {
		err = e
	}
	return err
}

// region is the memory of one rank.
type region struct{ at unsafe.Pointer }

func (r region) header() *header { return (*header)(r.at) }

func (r region) board(i int) *board { return (*board)(unsafe.Add(r.at, boardsOffset+i*128)) }

func (r region) ring(i int) *ring { return (*ring)(unsafe.Add(r.at, ringsOffset+i*64)) }

func (r region) name(i int) *[nameBytes]byte {
	return (*[nameBytes]byte)(unsafe.Add(r.at, namesOffset+i*nameBytes))
}

func (r region) dump() *[dumpBytes]byte { return (*[dumpBytes]byte)(unsafe.Add(r.at, dumpOffset)) }

func (r region) record(ring int, position uint64) *Record {
	return (*Record)(unsafe.Add(r.at, eventsOffset+ring*ringBytes+int(position%RingRecords)*32))
}

// takeRing finds a ring for a writer; -1: all are taken.
func (r region) takeRing(name string) int {
	for _, wanted := range []uint32{ringFree, ringEnded} { // a ring with records of a writer that has ended comes last
		for i := range maxRings {
			g := r.ring(i)
			if !atomic.CompareAndSwapUint32(&g.state, wanted, ringTaken) {
				continue
			}
			put(g.name[:], name)
			atomic.StoreUint64(&g.base, g.next)
			atomic.StoreUint32(&g.shared, 0)
			atomic.StoreUint32(&g.state, ringUsed)
			return i
		}
	}
	atomic.AddUint32(&r.header().unwritten, 1)
	return -1
}

// put stores a text that ends with a zero.
func put(to []byte, text string) {
	clear(to)
	copy(to[:len(to)-1], text)
}

func text(b []byte) string {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return strings.ToValidUTF8(string(b), "?")
}
