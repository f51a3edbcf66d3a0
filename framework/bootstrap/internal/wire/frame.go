// Package wire encodes what travels over a connection between ranks: frames, and parcels in them.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/mscclpp-go/mscclpp/framework"
)

// After the handshake a connection carries frames, little-endian:
//
//	u32 length of the body | u8 type | 3 bytes 0 | u64 tag | body
const (
	HeaderSize = 16
	MaxFrame   = MaxData + 16<<20 // data and blobs of one parcel
	maxControl = 64 << 10
)

// Kind is what a frame is.
type Kind uint8

// The kinds. Those from 16 on are of check-in.
const (
	KindParcel  Kind = 1 // tag, number of the first descriptor, parcel
	KindNotice  Kind = 2 // the job or a group has ended
	KindGoodbye Kind = 3 // u64: parcels that were sent to you in all

	KindCheckIn Kind = 16 // to rank 0: an entry
	KindTable   Kind = 17 // from rank 0: instance of the job, entries of your neighbors
	KindWaiting Kind = 18 // from rank 0: text that names the missing ranks
	KindReady   Kind = 19 // to rank 0: this rank has its links
	KindGaveUp  Kind = 20 // to rank 0: this rank does not wait any longer
	KindBusy    Kind = 21 // from rank 0: text; the job that is here ends, come again
)

// Append appends a frame.
func Append(dst []byte, t Kind, tag uint64, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, byte(t), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, tag)
	return append(dst, body...)
}

// Frame is one message of a connection.
type Frame struct {
	Kind Kind
	Tag  uint64
	Body []byte
}

// Read reads one frame. A length that makes no sense is an error before
// anything is allocated for it, and memory grows with what really arrives.
func Read(r io.Reader) (Frame, error) {
	var h [HeaderSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: message truncated in its header: %w", framework.ErrPeer, err)
		}
		return Frame{}, err
	}
	f := Frame{Kind: Kind(h[4]), Tag: binary.LittleEndian.Uint64(h[8:])}
	size, limit := int64(binary.LittleEndian.Uint32(h[:])), int64(maxControl)
	switch f.Kind {
	case KindParcel:
		limit = MaxFrame
	case KindNotice, KindGoodbye, KindCheckIn, KindTable, KindWaiting, KindReady, KindGaveUp, KindBusy:
	default:
		return Frame{}, fmt.Errorf("%w: message of unknown type %d", framework.ErrPeer, f.Kind)
	}
	if h[5]|h[6]|h[7] != 0 {
		return Frame{}, fmt.Errorf("%w: message with a malformed header", framework.ErrPeer)
	}
	if size > limit {
		return Frame{}, fmt.Errorf("%w: message of %d bytes: expected at most %d", framework.ErrPeer, size, limit)
	}
	const piece = 1 << 20
	for int64(len(f.Body)) < size {
		n := min(size-int64(len(f.Body)), piece)
		at := len(f.Body)
		f.Body = append(f.Body, make([]byte, n)...)
		if _, err := io.ReadFull(r, f.Body[at:]); err != nil {
			return Frame{}, fmt.Errorf("%w: message truncated: %d of %d bytes: %w", framework.ErrPeer, at, size, io.ErrUnexpectedEOF)
		}
	}
	return f, nil
}

// PutParcelHeader fills in the first bytes of a parcel's frame.
func PutParcelHeader(b []byte, tag, first uint64) {
	h := Append(b[:0], KindParcel, tag, nil)
	binary.LittleEndian.PutUint32(h, uint32(len(b)-HeaderSize))
	binary.LittleEndian.PutUint64(b[HeaderSize:], first)
}
