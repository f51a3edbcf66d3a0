package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Limits of one parcel. They keep a broken or malicious peer from making a rank
// allocate without bound; set-up needs a thousandth of them.
const (
	MaxData   = 64 << 20 // bytes of Parcel.Data
	MaxShares = 4096     // shares of a parcel
	MaxBlob   = 1 << 20  // bytes of Share.Blob
	MaxKind   = 64       // bytes of Share.Kind
)

// Valid refuses what the far side would refuse, where the mistake is made.
func Valid(p framework.Parcel) error {
	if len(p.Data) > MaxData {
		return fmt.Errorf("%w: a parcel of %d bytes: expected at most %d", framework.ErrInvalid, len(p.Data), MaxData)
	}
	if len(p.Shares) > MaxShares {
		return fmt.Errorf("%w: a parcel of %d shares: expected at most %d", framework.ErrInvalid, len(p.Shares), MaxShares)
	}
	for i, s := range p.Shares {
		switch {
		case len(s.Kind) > MaxKind:
			return fmt.Errorf("%w: share %d: a kind of %d bytes: expected at most %d", framework.ErrInvalid, i, len(s.Kind), MaxKind)
		case len(s.Blob) > MaxBlob:
			return fmt.Errorf("%w: share %d: a blob of %d bytes: expected at most %d", framework.ErrInvalid, i, len(s.Blob), MaxBlob)
		case s.FD == nil && s.Kind.HasFD():
			return fmt.Errorf("%w: share %d is a %s without a descriptor", framework.ErrInvalid, i, s.Kind)
		}
	}
	return nil
}

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

// AppendParcel appends the wire form. Without withFDs, shares that are descriptors
// are dropped: the parcel goes to another host.
func AppendParcel(dst []byte, p framework.Parcel, withFDs bool) []byte {
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

// DecodeParcel is the inverse. It returns which shares await a descriptor. The
// parcel's data is a part of b.
func DecodeParcel(b []byte) (framework.Parcel, []int, error) {
	r := Reader{B: b}
	version, zero := r.U8("version"), r.U8("version")
	if r.Err == nil && (version != parcelVersion || zero != 0) {
		return framework.Parcel{}, nil, fmt.Errorf("%w: a parcel of version %d: expected %d", framework.ErrPeer, version, parcelVersion)
	}
	n := int(r.U16("number of shares"))
	if n > MaxShares {
		return framework.Parcel{}, nil, fmt.Errorf("%w: a parcel of %d shares: expected at most %d", framework.ErrPeer, n, MaxShares)
	}
	var p framework.Parcel
	var awaited []int
	for i := 0; i < n && r.Err == nil; i++ {
		var s framework.Share
		s.Kind = framework.ShareKind(r.Bytes(int(r.U8("kind of a share")), "kind of a share"))
		flags := r.U8("flags of a share")
		if r.Err == nil && (flags&^flagFD != 0 || len(s.Kind) > MaxKind) {
			return framework.Parcel{}, nil, fmt.Errorf("%w: share %d is malformed", framework.ErrPeer, i)
		}
		if size := r.U32("length of a blob"); size > MaxBlob {
			return framework.Parcel{}, nil, fmt.Errorf("%w: share %d has a blob of %d bytes: expected at most %d", framework.ErrPeer, i, size, MaxBlob)
		} else if size > 0 {
			s.Blob = append([]byte(nil), r.Bytes(int(size), "blob of a share")...)
		}
		if flags&flagFD != 0 {
			awaited = append(awaited, i)
		}
		p.Shares = append(p.Shares, s)
	}
	if r.Err != nil {
		return framework.Parcel{}, nil, r.Err
	}
	if len(r.B) > 0 {
		p.Data = r.B
	}
	if len(p.Data) > MaxData {
		return framework.Parcel{}, nil, fmt.Errorf("%w: a parcel of %d bytes: expected at most %d", framework.ErrPeer, len(p.Data), MaxData)
	}
	return p, awaited, nil
}

// Reader takes fields off a message and remembers the first that was missing.
type Reader struct {
	B   []byte
	Err error
}

// Bytes takes the next bytes.
func (r *Reader) Bytes(n int, what string) []byte {
	if r.Err == nil && n > len(r.B) {
		r.Err = fmt.Errorf("%w: message truncated in %s: %d bytes left, expected %d", framework.ErrPeer, what, len(r.B), n)
	}
	if r.Err != nil {
		return nil
	}
	out := r.B[:n:n]
	r.B = r.B[n:]
	return out
}

// U8 takes the next byte.
func (r *Reader) U8(what string) uint8 {
	if b := r.Bytes(1, what); b != nil {
		return b[0]
	}
	return 0
}

// U16 takes the next number of two bytes.
func (r *Reader) U16(what string) uint16 {
	if b := r.Bytes(2, what); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 takes the next number of four bytes.
func (r *Reader) U32(what string) uint32 {
	if b := r.Bytes(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 takes the next number of eight bytes.
func (r *Reader) U64(what string) uint64 {
	if b := r.Bytes(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// End reports bytes that no field accounts for.
func (r *Reader) End(what string) error {
	if r.Err == nil && len(r.B) != 0 {
		r.Err = fmt.Errorf("%w: %d bytes too many after %s", framework.ErrPeer, len(r.B), what)
	}
	return r.Err
}
