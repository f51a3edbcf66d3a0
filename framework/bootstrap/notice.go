package bootstrap

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

const (
	noticeText = 4 << 10
	noCulprit  = ^uint32(0)
)

// notice is the news of an end, as it goes from rank to rank.
type notice struct {
	group   uint64 // 0: the job
	origin  int    // the rank that says so
	culprit int    // the rank to blame; framework.NoPeer for none
	class   error  // of what the others report; nil = framework.ErrPeer
	departs bool   // the culprit alone ends, and the others go on
	text    string
}

// departure is the notice of a rank that leaves alone.
func departure(group uint64, origin int, cause error) notice {
	text := "no cause given"
	if cause != nil {
		text = cause.Error()
	}
	return notice{group: group, origin: origin, culprit: origin, departs: true, text: fmt.Sprintf("rank %d has left the job: %s", origin, text)}
}

// announcement is the notice of a rank that leaves on an error.
func announcement(group uint64, origin int, cause error) notice {
	n := notice{group: group, origin: origin, culprit: origin, text: "no cause given"}
	if cause != nil {
		n.text = failure.Innermost(cause).Error()
	}
	if peer := framework.PeerOf(cause); peer >= 0 {
		n.culprit = peer
	}
	return n
}

// err is what the other ranks report.
func (n notice) err() error {
	said, class := "", n.class
	if n.origin != n.culprit {
		said = fmt.Sprintf(" (reported by rank %d)", n.origin)
	}
	if class == nil {
		class = framework.ErrPeer
	}
	return &framework.Error{Op: "bootstrap", Peer: n.culprit, Err: fmt.Errorf("%w: %s%s", class, strings.TrimPrefix(n.text, class.Error()+": "), said)}
}

// own is what the rank that announced reports itself: its cause, with its class.
func (n notice) own(cause error) error {
	if cause == nil {
		return n.err()
	}
	return &framework.Error{Op: "bootstrap", Peer: n.culprit, Err: cause}
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
	if n.departs {
		b[2] = 1
	}
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
	r := wire.Reader{B: b}
	version, class := r.U8("version of a notice"), int(r.U8("class of a notice"))
	departs := r.U8("kind of a notice")
	r.U8("notice")
	n := notice{group: r.U64("group of a notice"), culprit: framework.NoPeer, departs: departs == 1}
	origin, culprit := r.U32("origin of a notice"), r.U32("culprit of a notice")
	switch {
	case r.Err != nil:
		return notice{}, r.Err
	case version != 1:
		return notice{}, fmt.Errorf("%w: notice of version %d: expected 1", framework.ErrPeer, version)
	case departs > 1 || n.departs && origin != culprit:
		return notice{}, fmt.Errorf("%w: notice of kind %d about rank %d by rank %d: expected an end, or a departure of the rank itself", framework.ErrPeer, departs, culprit, origin)
	case origin >= uint32(size) || (culprit >= uint32(size) && culprit != noCulprit) || class > len(framework.Classes):
		return notice{}, fmt.Errorf("%w: notice about rank %d by rank %d of %d: expected ranks of the job", framework.ErrPeer, culprit, origin, size)
	case len(r.B) > noticeText:
		return notice{}, fmt.Errorf("%w: notice of %d bytes: expected at most %d", framework.ErrPeer, len(r.B), noticeText)
	}
	if class > 0 {
		n.class = framework.Classes[class-1]
	}
	if culprit != noCulprit {
		n.culprit = int(culprit)
	}
	n.origin = int(origin)
	n.text = strings.ToValidUTF8(string(r.B), "?")
	return n, nil
}
