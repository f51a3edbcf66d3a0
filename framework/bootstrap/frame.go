package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// After the handshake a connection carries frames, little-endian:
//
//	u32 length of the body | u8 type | 3 bytes 0 | u64 tag | body
const (
	frameHeader  = 16
	maxFrame     = MaxData + 16<<20 // data and blobs of one parcel
	maxControl   = 64 << 10
	noticeText   = 4 << 10
	noCulprit    = ^uint32(0)
	noticeHeader = 20
)

type frameType uint8

const (
	frameParcel  frameType = 1 // tag, number of the first descriptor, parcel
	frameNotice  frameType = 2 // the job or a group has ended
	frameGoodbye frameType = 3 // u64: parcels that were sent to you in all

	frameCheckIn frameType = 16 // to rank 0: an entry
	frameTable   frameType = 17 // from rank 0: instance of the job, entries of your neighbors
	frameWaiting frameType = 18 // from rank 0: text that names who is missing
	frameReady   frameType = 19 // to rank 0: this rank has its links
	frameGaveUp  frameType = 20 // to rank 0: this rank does not wait any longer
	frameBusy    frameType = 21 // from rank 0: text; the job that is here ends, come again
)

func appendFrame(dst []byte, t frameType, tag uint64, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, byte(t), 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, tag)
	return append(dst, body...)
}

// frame is one message of a connection.
type frame struct {
	kind frameType
	tag  uint64
	body []byte
}

// readFrame reads one frame. A length that makes no sense is an error before
// anything is allocated for it, and memory grows with what really arrives.
func readFrame(r io.Reader) (frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: message truncated in its header: %w", framework.ErrPeer, err)
		}
		return frame{}, err
	}
	f := frame{kind: frameType(h[4]), tag: binary.LittleEndian.Uint64(h[8:])}
	size, limit := int64(binary.LittleEndian.Uint32(h[:])), int64(maxControl)
	switch f.kind {
	case frameParcel:
		limit = maxFrame
	case frameNotice, frameGoodbye, frameCheckIn, frameTable, frameWaiting, frameReady, frameGaveUp, frameBusy:
	default:
		return frame{}, fmt.Errorf("%w: message of unknown type %d", framework.ErrPeer, f.kind)
	}
	if h[5]|h[6]|h[7] != 0 {
		return frame{}, fmt.Errorf("%w: message with a malformed header", framework.ErrPeer)
	}
	if size > limit {
		return frame{}, fmt.Errorf("%w: message of %d bytes: expected at most %d", framework.ErrPeer, size, limit)
	}
	const piece = 1 << 20
	for int64(len(f.body)) < size {
		n := min(size-int64(len(f.body)), piece)
		at := len(f.body)
		f.body = append(f.body, make([]byte, n)...)
		if _, err := io.ReadFull(r, f.body[at:]); err != nil {
			return frame{}, fmt.Errorf("%w: message truncated: %d of %d bytes: %w", framework.ErrPeer, at, size, io.ErrUnexpectedEOF)
		}
	}
	return f, nil
}

func classCode(err error) byte {
	for i, c := range framework.Classes {
		if c == err { //nolint:errorlint // the class itself, not what wraps it
			return byte(i + 1)
		}
	}
	return 0
}

func (n notice) encode() []byte {
	b := []byte{1, classCode(n.class), 0, 0}
	b = binary.LittleEndian.AppendUint64(b, n.group)
	b = binary.LittleEndian.AppendUint32(b, uint32(n.origin))
	culprit := noCulprit
	if n.culprit >= 0 {
		culprit = uint32(n.culprit)
	}
	b = binary.LittleEndian.AppendUint32(b, culprit)
	return append(b, n.text[:min(len(n.text), noticeText)]...)
}

func decodeNotice(b []byte, size int) (notice, error) {
	r := reader{b: b}
	version, class := r.u8("version of a notice"), int(r.u8("class of a notice"))
	r.u16("notice")
	n := notice{group: r.u64("group of a notice"), culprit: framework.NoPeer}
	origin, culprit := r.u32("origin of a notice"), r.u32("culprit of a notice")
	switch {
	case r.err != nil:
		return notice{}, r.err
	case version != 1:
		return notice{}, fmt.Errorf("%w: notice of version %d: expected 1", framework.ErrPeer, version)
	case origin >= uint32(size) || (culprit >= uint32(size) && culprit != noCulprit) || class > len(framework.Classes):
		return notice{}, fmt.Errorf("%w: notice about rank %d by rank %d of %d: expected ranks of the job", framework.ErrPeer, culprit, origin, size)
	case len(r.b) > noticeText:
		return notice{}, fmt.Errorf("%w: notice of %d bytes: expected at most %d", framework.ErrPeer, len(r.b), noticeText)
	}
	if class > 0 {
		n.class = framework.Classes[class-1]
	}
	if culprit != noCulprit {
		n.culprit = int(culprit)
	}
	n.origin = int(origin)
	n.text = strings.ToValidUTF8(string(r.b), "?")
	return n, nil
}

// putParcelHeader fills in the first bytes of a parcel's frame.
func putParcelHeader(b []byte, tag, first uint64) {
	h := appendFrame(b[:0], frameParcel, tag, nil)
	binary.LittleEndian.PutUint32(h, uint32(len(b)-frameHeader))
	binary.LittleEndian.PutUint64(b[frameHeader:], first)
}
