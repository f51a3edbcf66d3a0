// Package parcel begins and ends what the sides of a link send each other through the
// bootstrap: a head that says what it is, and where wanted a checksum. Between are
// fields, little endian, as each transport has them.
package parcel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/mscclpp-go/mscclpp/framework"
)

// HeadBytes is the length of a head: magic, version and type.
const HeadBytes = 6

const sumBytes = 4

// Head says whose the parcels are. Peers of one job may run different builds, so a
// change of what is in parcels raises the version.
type Head struct {
	Magic     [4]byte
	Version   byte
	Transport string // its name, for errors
}

// Append begins a parcel of a type.
func (h Head) Append(b []byte, kind byte) []byte {
	return append(append(b, h.Magic[:]...), h.Version, kind)
}

// Check refuses what does not begin as a parcel of a type does; what names that in the
// error, ErrPeer.
func (h Head) Check(b []byte, kind byte, what string) error {
	switch {
	case len(b) < HeadBytes || !bytes.Equal(b[:4], h.Magic[:]):
		return fmt.Errorf("%w: %d bytes that are no %s of %s", framework.ErrPeer, len(b), what, h.Transport)
	case b[4] != h.Version:
		return fmt.Errorf("%w: %s of version %d: expected %d; the ranks run different builds", framework.ErrPeer, what, b[4], h.Version)
	case b[5] != kind:
		return fmt.Errorf("%w: expected %s, got something else of %s", framework.ErrPeer, what, h.Transport)
	}
	return nil
}

// Seal ends a parcel that begins at start with the checksum of all of it.
func Seal(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// Unseal checks a sealed parcel as Check does, and that it came whole and alone. It
// returns what is between head and checksum.
func (h Head) Unseal(p framework.Parcel, kind byte, what string) ([]byte, error) {
	b := p.Data
	n := len(b) - sumBytes
	if n < HeadBytes {
		return nil, fmt.Errorf("%w: %d bytes that are no %s of %s", framework.ErrPeer, len(b), what, h.Transport)
	}
	if err := h.Check(b, kind, what); err != nil {
		return nil, err
	}
	switch {
	case len(p.Shares) != 0:
		return nil, fmt.Errorf("%w: %s with %d shares: expected none", framework.ErrPeer, what, len(p.Shares))
	case binary.LittleEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]):
		return nil, fmt.Errorf("%w: %s is damaged: its checksum is wrong", framework.ErrPeer, what)
	}
	return b[HeadBytes:n], nil
}
