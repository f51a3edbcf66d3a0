package cuda

// #include "shim.h"
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// block is memory of one device, with a count of its users: devices of the same
// process use it under the address that it has, instead of importing it.
type block struct {
	owner  *primary
	kind   blockKind
	base   uint64 // address
	bytes  uint64 // that may be used
	vmm    C.cuda_block
	mapped bool   // made of handles, so that access is given by range
	types  int    // of handles that it can be exported as
	start  uint64 // of the driver's allocation that contains base
	whole  uint64 // bytes of that allocation
	legacy bool   // the driver has an older handle of it

	id      uint64
	users   int   // guarded by blocks
	granted []int // devices with access, beside the owner; guarded by blocks
}

type blockKind uint8

const (
	blockVMM     blockKind = iota + 1 // ours, behind a handle
	blockLegacy                       // ours, from the driver's older allocator
	blockForeign                      // the application's
	blockHost                         // the application's, pinned host memory
)

// blocks are those that a local share can name.
var blocks = struct {
	sync.Mutex
	open map[uint64]*block
	next uint64
}{open: map[uint64]*block{}}

// process distinguishes a share of this process from one of any other. A process id would
// not do: it is reused, and means something else in another namespace.
var process = sync.OnceValue(func() (id [16]byte) {
	rand.Read(id[:]) // never fails: crypto/rand aborts the process instead
	return id
})

// enter makes the block known. Its owner is held already.
func (b *block) enter() *block {
	blocks.Lock()
	defer blocks.Unlock()
	blocks.next++
	b.id, b.users = blocks.next, 1
	blocks.open[b.id] = b
	return b
}

// release drops one user. The last one gives the memory back.
func (b *block) release() error {
	blocks.Lock()
	b.users--
	last := b.users == 0
	if last {
		delete(blocks.open, b.id)
	}
	blocks.Unlock()
	if !last {
		return nil
	}
	var err error
	switch b.kind {
	case blockVMM:
		err = b.owner.check("free", C.cuda_destroy(b.owner.c, &b.vmm))
	case blockLegacy:
		err = b.owner.check("free", C.cuda_free(b.owner.c, C.uint64_t(b.base)))
	}
	if e := b.owner.drop(); err == nil {
		err = e
	}
	return err
}

const (
	localVersion = 0x81 // not that of a share of the host's
	localBytes   = 1 + 16 + 8
)

// local is the content of a local share: version, process, block.
func (b *block) local() []byte {
	id := process()
	return binary.LittleEndian.AppendUint64(append([]byte{localVersion}, id[:]...), b.id)
}

// parseLocal returns the number of the block that a local share names.
func parseLocal(blob []byte) (uint64, error) {
	if len(blob) != localBytes || blob[0] != localVersion {
		return 0, fmt.Errorf("%w: share of %d bytes: expected %d, version %#x", framework.ErrInvalid, len(blob), localBytes, localVersion)
	}
	if [16]byte(blob[1:17]) != process() {
		return 0, fmt.Errorf("%w: made by another process", framework.ErrUnavailable)
	}
	return binary.LittleEndian.Uint64(blob[17:]), nil
}

// within refuses ranges that leave the memory.
func within(offset, bytes, size uint64) error {
	if bytes == 0 || offset > size || bytes > size-offset {
		return fmt.Errorf("%w: %d bytes at offset %d exceed the memory of %d bytes", framework.ErrInvalid, bytes, offset, size)
	}
	return nil
}
