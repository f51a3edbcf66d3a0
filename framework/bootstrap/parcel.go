package bootstrap

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The wire form of a parcel, little-endian:
//
//	u8 version | u8 0 | u16 shares
//	per share: u8 length of kind | kind | u8 flags | u32 length of blob | blob
//	data, to the end
//
// Flag 1 marks a share whose descriptor travels beside the bytes.
const (
	parcelVersion = 1
	flagFD        = 1
)

// appendParcel appends the wire form. Without withFDs, shares that are descriptors
// are dropped: the parcel goes to another host.
func appendParcel(dst []byte, p framework.Parcel, withFDs bool) []byte {
	kept := 0
	for _, s := range p.Shares {
		if s.FD == nil || withFDs {
			kept++
		}
	}
	dst = append(dst, parcelVersion, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(kept))
	for _, s := range p.Shares {
		if s.FD != nil && !withFDs {
			continue
		}
		flags := byte(0)
		if s.FD != nil {
			flags = flagFD
		}
		dst = append(dst, byte(len(s.Kind)))
		dst = append(dst, s.Kind...)
		dst = append(dst, flags)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.Blob)))
		dst = append(dst, s.Blob...)
	}
	return append(dst, p.Data...)
}

// decodeParcel is the inverse. It returns which shares await a descriptor. The
// parcel's data is a part of b.
func decodeParcel(b []byte) (framework.Parcel, []int, error) {
	r := reader{b: b}
	version, zero := r.u8("version"), r.u8("version")
	if r.err == nil && (version != parcelVersion || zero != 0) {
		return framework.Parcel{}, nil, fmt.Errorf("%w: a parcel of version %d: expected %d", framework.ErrPeer, version, parcelVersion)
	}
	n := int(r.u16("number of shares"))
	if n > MaxShares {
		return framework.Parcel{}, nil, fmt.Errorf("%w: a parcel of %d shares: expected at most %d", framework.ErrPeer, n, MaxShares)
	}
	var p framework.Parcel
	var awaited []int
	for i := 0; i < n && r.err == nil; i++ {
		var s framework.Share
		s.Kind = framework.ShareKind(r.bytes(int(r.u8("kind of a share")), "kind of a share"))
		flags := r.u8("flags of a share")
		if r.err == nil && (flags&^flagFD != 0 || len(s.Kind) > maxKind) {
			return framework.Parcel{}, nil, fmt.Errorf("%w: share %d is malformed", framework.ErrPeer, i)
		}
		if size := r.u32("length of a blob"); size > maxBlob {
			return framework.Parcel{}, nil, fmt.Errorf("%w: share %d has a blob of %d bytes: expected at most %d", framework.ErrPeer, i, size, maxBlob)
		} else if size > 0 {
			s.Blob = append([]byte(nil), r.bytes(int(size), "blob of a share")...)
		}
		if flags&flagFD != 0 {
			awaited = append(awaited, i)
		}
		p.Shares = append(p.Shares, s)
	}
	if r.err != nil {
		return framework.Parcel{}, nil, r.err
	}
	if len(r.b) > 0 {
		p.Data = r.b
	}
	if len(p.Data) > MaxData {
		return framework.Parcel{}, nil, fmt.Errorf("%w: a parcel of %d bytes: expected at most %d", framework.ErrPeer, len(p.Data), MaxData)
	}
	return p, awaited, nil
}

// reader takes fields off a message and remembers the first that was missing.
type reader struct {
	b   []byte
	err error
}

func (r *reader) bytes(n int, what string) []byte {
	if r.err == nil && n > len(r.b) {
		r.err = fmt.Errorf("%w: message truncated in %s: %d bytes left, expected %d", framework.ErrPeer, what, len(r.b), n)
	}
	if r.err != nil {
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8(what string) uint8 {
	if b := r.bytes(1, what); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16(what string) uint16 {
	if b := r.bytes(2, what); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32(what string) uint32 {
	if b := r.bytes(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.bytes(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// end reports bytes that no field accounts for.
func (r *reader) end(what string) error {
	if r.err == nil && len(r.b) != 0 {
		r.err = fmt.Errorf("%w: %d bytes too many after %s", framework.ErrPeer, len(r.b), what)
	}
	return r.err
}
