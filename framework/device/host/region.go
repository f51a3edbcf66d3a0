package host

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// region is a mapping with a count of its users. Ranks that share a process share
// the region instead of mapping the file again, so one of them may close its
// memory while another still uses it.
type region struct {
	memory *memfd.Memory
	id     uint64
	users  int // guarded by regions
}

var regions = struct {
	sync.Mutex
	open map[uint64]*region
	next uint64
}{open: map[uint64]*region{}}

// process distinguishes a share of this process from one of any other. A process id would
// not do: it is reused, and means something else in another namespace.
var process = sync.OnceValue(func() (id [16]byte) {
	rand.Read(id[:]) // never fails: crypto/rand aborts the process instead
	return id
})

func newRegion(m *memfd.Memory) *region {
	regions.Lock()
	defer regions.Unlock()
	regions.next++
	r := &region{memory: m, id: regions.next, users: 1}
	regions.open[r.id] = r
	return r
}

// release drops one user. The last one unmaps.
func (r *region) release() error {
	regions.Lock()
	r.users--
	last := r.users == 0
	if last {
		delete(regions.open, r.id)
	}
	regions.Unlock()
	if last {
		return r.memory.Close()
	}
	return nil
}

// blob is the content of a local share: version, process, region.
func (r *region) blob() []byte {
	id := process()
	return binary.LittleEndian.AppendUint64(append([]byte{localVersion}, id[:]...), r.id)
}

const (
	localVersion = 1
	localBytes   = 1 + 16 + 8
)

// openLocal finds the region behind a local share and becomes a user of it.
func openLocal(blob []byte, offset, bytes uint64) (*Memory, error) {
	if len(blob) != localBytes || blob[0] != localVersion {
		return nil, fmt.Errorf("%w: share of %d bytes: expected %d, version %d", framework.ErrInvalid, len(blob), localBytes, localVersion)
	}
	if [16]byte(blob[1:17]) != process() {
		return nil, fmt.Errorf("%w: made by another process", framework.ErrUnavailable)
	}
	id := binary.LittleEndian.Uint64(blob[17:])
	regions.Lock()
	defer regions.Unlock()
	r := regions.open[id]
	if r == nil {
		return nil, fmt.Errorf("%w: its memory was closed", framework.ErrClosed)
	}
	size := r.memory.Len()
	if bytes == 0 || offset > size || bytes > size-offset {
		return nil, fmt.Errorf("%w: %d bytes at offset %d exceed the memory of %d bytes", framework.ErrInvalid, bytes, offset, size)
	}
	r.users++
	return &Memory{addr: uintptr(r.memory.Addr()) + uintptr(offset), bytes: bytes, region: r, mapped: true}, nil
}
