package cuda

// #include "shim.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A legacy share is: version, process, the driver's handle of an allocation, and
// where in it the memory lies: offset and bytes.
const (
	legacyVersion = 1
	legacyBytes   = 1 + 16 + C.sizeof_CUipcMemHandle + 8 + 8
)

func (b *block) exportLegacy() (framework.Share, error) {
	handle := make([]byte, C.sizeof_CUipcMemHandle)
	if err := b.owner.check("export", C.cuda_ipc_get(b.owner.c, C.uint64_t(b.base), ptr(handle))); err != nil {
		return framework.Share{}, err
	}
	id := process()
	blob := append([]byte{legacyVersion}, id[:]...)
	blob = append(blob, handle...)
	blob = binary.LittleEndian.AppendUint64(blob, b.base-b.start)
	blob = binary.LittleEndian.AppendUint64(blob, b.bytes)
	return framework.Share{Kind: framework.ShareLegacyIPC, Blob: blob}, nil
}

// parseLegacy checks a share and takes it apart: the driver's handle, and where in
// the allocation the memory lies.
func parseLegacy(blob []byte) (handle []byte, start, size uint64, err error) {
	if len(blob) != legacyBytes || blob[0] != legacyVersion {
		return nil, 0, 0, fmt.Errorf("%w: share of %d bytes: expected %d, version %d", framework.ErrInvalid, len(blob), legacyBytes, legacyVersion)
	}
	if [16]byte(blob[1:17]) == process() {
		return nil, 0, 0, fmt.Errorf("%w: the driver opens it in other processes only", framework.ErrUnsupported)
	}
	handle, place := blob[17:legacyBytes-16], blob[legacyBytes-16:]
	start, size = binary.LittleEndian.Uint64(place), binary.LittleEndian.Uint64(place[8:])
	if start > maxBytes || size > maxBytes {
		return nil, 0, 0, fmt.Errorf("%w: %d bytes at offset %d of an allocation: expected at most %d", framework.ErrInvalid, size, start, uint64(maxBytes))
	}
	return handle, start, size, nil
}

func (d *allocator) openLegacy(blob []byte, offset, bytes uint64) (*Memory, error) {
	handle, start, size, err := parseLegacy(blob)
	if err != nil {
		return nil, err
	}
	if err := within(offset, bytes, size); err != nil {
		return nil, err
	}
	if err := d.begin("map"); err != nil {
		return nil, err
	}
	var base C.uint64_t
	if err := d.check("import", C.cuda_ipc_open(d.c, ptr(handle), &base)); err != nil {
		return nil, errorsFirst(err, d.drop())
	}
	return &Memory{dev: d, addr: uintptr(base) + uintptr(start+offset), bytes: bytes, release: func() error {
		return errors.Join(d.check("unmap", C.cuda_ipc_close(d.c, base)), d.drop())
	}}, nil
}
