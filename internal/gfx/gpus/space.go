package gpus

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// space is the addresses of a process.
type space struct {
	list []span // ascending
	last int    // the one that was found last
	// access has the process access memory of the host, by its numbers of devices.
	access func(operation, own int32, addr uint64, size int, data *[4]uint32) error
}

// span is a range of them. Memory of the host has no file here.
type span struct {
	start, end uint64
	here       uint64 // where this process has it
	file       *file
	own        int32 // the device, by the client's numbers
}

// file is memory of a device, which several processes may have.
type file struct {
	key    fileKey
	bytes  []byte
	region memory.Region
	users  int
}

type fileKey struct{ device, inode uint64 }

var errNoMemory = errors.New("no memory of the process")

func (s *space) find(addr uint64, size int) (*span, error) {
	if s.last < len(s.list) {
		if x := &s.list[s.last]; addr >= x.start && addr < x.end && uint64(size) <= x.end-addr {
			return x, nil
		}
	}
	at, found := s.search(addr)
	if !found {
		at--
	}
	if at < 0 || addr >= s.list[at].end || uint64(size) > s.list[at].end-addr {
		return nil, fmt.Errorf("%d bytes at %#x: %w", size, addr, errNoMemory)
	}
	s.last = at
	return &s.list[at], nil
}

func (s *space) search(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(s.list, addr, func(x span, a uint64) int {
		switch {
		case x.start < a:
			return -1
		case x.start > a:
			return 1
		}
		return 0
	})
}

func (s *space) add(x span) error {
	at, found := s.search(x.start)
	if x.end <= x.start || found || at > 0 && s.list[at-1].end > x.start || at < len(s.list) && s.list[at].start < x.end {
		return fmt.Errorf("memory from %#x to %#x: it is empty, or overlaps with other memory", x.start, x.end)
	}
	s.list = slices.Insert(s.list, at, x)
	return nil
}

// remove returns what began at an address.
func (s *space) remove(start uint64) (x span, found bool) {
	at, found := s.search(start)
	if found {
		x = s.list[at]
		s.list = slices.Delete(s.list, at, at+1)
	}
	return x, found
}

// spaces is memory by the addresses of the process whose kernel accesses it. It implements machine.Memory.
type spaces struct {
	*memory.Caches
	of map[int]*space
}

// place finds what a kernel accesses: memory here, at an address, or a span of the host's.
func (m *spaces) place(c machine.Core, addr uint64, size int) (here uint64, onHost *span, err error) {
	x, err := m.of[c.Space].find(addr, size)
	switch {
	case err != nil && m.HasConstant(addr, size):
		return addr, nil, nil
	case err != nil:
		return 0, nil, err
	case x.file == nil:
		return 0, x, nil
	}
	return x.here + addr - x.start, nil, nil
}

func (m *spaces) Load(c machine.Core, s machine.Scope, addr uint64, size int, data *[4]uint32) error {
	here, onHost, err := m.place(c, addr, size)
	if err != nil {
		return err
	}
	if onHost != nil {
		return m.of[c.Space].access(loads, onHost.own, addr, size, data)
	}
	return m.Caches.Load(c, s, here, size, data)
}

func (m *spaces) Store(c machine.Core, s machine.Scope, addr uint64, size int, data *[4]uint32) error {
	here, onHost, err := m.place(c, addr, size)
	if err != nil {
		return err
	}
	if onHost != nil {
		return m.of[c.Space].access(stores, onHost.own, addr, size, data)
	}
	return m.Caches.Store(c, s, here, size, data)
}

func (m *spaces) Atomic(c machine.Core, s machine.Scope, o machine.Operation, addr uint64, size int, data *[4]uint32) error {
	here, onHost, err := m.place(c, addr, size)
	if err != nil {
		return err
	}
	if onHost != nil {
		operation := map[machine.Operation]int32{machine.Add: adds, machine.CompareSwap: swaps}[o]
		return m.of[c.Space].access(operation, onHost.own, addr, size, data)
	}
	return m.Caches.Atomic(c, s, o, here, size, data)
}

// files is the memory of devices that is mapped.
type files struct {
	caches  *memory.Caches
	regions *memory.Regions
	of      map[fileKey]*file
}

// open maps a file that is memory, unless it is mapped already.
func (s *files) open(f *os.File, owner int, kind memory.Kind) (*file, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s: expected a file of memory", f.Name())
	}
	key := fileKey{stat.Dev, stat.Ino}
	if known := s.of[key]; known != nil {
		known.users++
		s.owned(known, owner, kind)
		return known, nil
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of a process: %w", info.Size(), err)
	}
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	x := &file{key: key, bytes: b, users: 1, region: memory.Region{Start: start, End: start + uint64(len(b)), Owner: owner, Kind: kind}}
	if err := s.regions.Add(x.region); err != nil {
		return nil, errors.Join(err, syscall.Munmap(b))
	}
	s.of[key] = x
	return x, nil
}

// owned notes whose memory a file is, once its owner says so. Until then it counts as the host's, which no cache keeps.
func (s *files) owned(f *file, owner int, kind memory.Kind) {
	if owner != memory.Host && f.region.Owner == memory.Host {
		f.region.Owner, f.region.Kind = owner, kind
		s.regions.Change(f.region)
	}
}

// leave unmaps what no process has any more.
func (s *files) leave(x span) error {
	f := x.file
	if f == nil {
		return nil
	}
	if f.users--; f.users > 0 {
		return nil
	}
	delete(s.of, f.key)
	s.regions.Remove(f.region.Start)
	s.caches.Discard(f.region.Start, f.region.End)
	return syscall.Munmap(f.bytes)
}

var _ machine.Memory = (*spaces)(nil)
