package native

// #include "table.h"
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// block is memory that a local share can name, with a count of its users: devices of the same process use it under the
// address that it has, instead of importing it.
type block struct {
	owner  *opened
	m      C.mscclpp_device_memory
	free   func() error // gives the memory back
	id     uint64
	users  int   // guarded by blocks
	grants []int // devices with access, beside the owner; guarded by blocks
}

var blocks = struct {
	sync.Mutex
	open map[uint64]*block
	next uint64
}{open: map[uint64]*block{}}

// process distinguishes a share of this process from one of any other.
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
	err := b.free()
	if e := b.owner.drop(); err == nil {
		err = e
	}
	return err
}

const (
	localVersion = 0x82 // not that of a share of the host's
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

// openLocal finds the block behind a local share, gives the device access to it and becomes a user of it.
func (d *Device) openLocal(blob []byte, offset, bytes uint64) (*Memory, error) {
	id, err := parseLocal(blob)
	if err != nil {
		return nil, err
	}
	blocks.Lock()
	defer blocks.Unlock()
	b := blocks.open[id]
	if b == nil {
		return nil, fmt.Errorf("%w: its memory was closed", framework.ErrClosed)
	}
	if err := within(offset, bytes, uint64(b.m.bytes)); err != nil {
		return nil, err
	}
	if err := d.grant(b); err != nil {
		return nil, err
	}
	if err := d.hold("map"); err != nil {
		return nil, err
	}
	b.users++
	release := func() error { return firstOf(b.release(), d.drop()) }
	return &Memory{dev: d, addr: uintptr(b.m.address) + uintptr(offset), bytes: bytes, part: b, release: release}, nil
}

// grant gives the device access to a block of another one. blocks is locked.
func (d *Device) grant(b *block) error {
	if b.owner.b != d.b {
		return fmt.Errorf("%w: memory of %s", framework.ErrUnsupported, b.owner.info.Device)
	}
	if b.m.on_host != 0 || b.owner.index == d.index || slices.Contains(b.grants, d.index) {
		return nil
	}
	if can, err := d.Reaches(b.owner.index); err != nil || !can {
		return firstOf(err, fmt.Errorf("%w: %s has no peer access to %s", framework.ErrUnsupported, d.info.Device, b.owner.info.Device))
	}
	if err := d.check("peer access", C.native_grant(d.t, d.d, b.owner.d, &b.m)); err != nil {
		return err
	}
	b.grants = append(b.grants, d.index)
	return nil
}

// Reaches reports whether kernels of this device can load and store the memory of another one of this process's visible
// devices.
func (d *Device) Reaches(index int) (bool, error) {
	if err := d.live("peer access"); err != nil {
		return false, err
	}
	if index == d.index {
		return true, nil
	}
	if d.b.has&hasPeers == 0 {
		return false, nil
	}
	var can C.int32_t
	err := d.check("peer access", C.native_reaches(d.t, d.d, C.int32_t(index), &can))
	return can != 0, err
}

// within refuses ranges that leave the memory.
func within(offset, bytes, size uint64) error {
	if bytes == 0 || offset > size || bytes > size-offset {
		return fmt.Errorf("%w: %d bytes at offset %d exceed the memory of %d bytes", framework.ErrInvalid, bytes, offset, size)
	}
	return nil
}

// firstOf returns the first error that is one.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
