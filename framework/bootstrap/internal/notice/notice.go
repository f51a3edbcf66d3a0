// Package notice has the news of the end of a rank or a group, as it goes from rank to rank.
package notice

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

// Notice is the news of an end.
type Notice struct {
	Group   uint64 // 0: the job
	Origin  int    // the rank that says so
	Culprit int    // the rank to blame; framework.NoPeer for none
	Class   error  // of what the others report; nil = framework.ErrPeer
	Departs bool   // the culprit alone ends, and the others go on
	Text    string
}

// Departure is the notice of a rank that leaves alone.
func Departure(group uint64, origin int, cause error) Notice {
	text := "no cause given"
	if cause != nil {
		text = cause.Error()
	}
	return Notice{Group: group, Origin: origin, Culprit: origin, Departs: true, Text: fmt.Sprintf("rank %d has left the job: %s", origin, text)}
}

// Announcement is the notice of a rank that leaves on an error.
func Announcement(group uint64, origin int, cause error) Notice {
	n := Notice{Group: group, Origin: origin, Culprit: origin, Text: "no cause given"}
	if cause != nil {
		n.Text = failure.Innermost(cause).Error()
	}
	if peer := framework.PeerOf(cause); peer >= 0 {
		n.Culprit = peer
	}
	return n
}

// Err is the error of the ranks that have not announced the end.
func (n Notice) Err() error {
	said, class := "", n.Class
	if n.Origin != n.Culprit {
		said = fmt.Sprintf(" (reported by rank %d)", n.Origin)
	}
	if class == nil {
		class = framework.ErrPeer
	}
	return &framework.Error{Op: "bootstrap", Peer: n.Culprit, Err: fmt.Errorf("%w: %s%s", class, strings.TrimPrefix(n.Text, class.Error()+": "), said)}
}

// Own is the error of the rank that announced the end: its cause, with its class.
func (n Notice) Own(cause error) error {
	if cause == nil {
		return n.Err()
	}
	return &framework.Error{Op: "bootstrap", Peer: n.Culprit, Err: cause}
}

func classCode(err error) byte {
	for i, c := range framework.Classes {
		if c == err { //nolint:errorlint // the class itself, not what wraps it
			return byte(i + 1)
		}
	}
	return 0
}

// Encode writes the bytes of a notice, which Decode reads.
func (n Notice) Encode() []byte {
	b := []byte{1, classCode(n.Class), 0, 0}
	if n.Departs {
		b[2] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, n.Group)
	b = binary.LittleEndian.AppendUint32(b, uint32(n.Origin))
	culprit := noCulprit
	if n.Culprit >= 0 {
		culprit = uint32(n.Culprit)
	}
	b = binary.LittleEndian.AppendUint32(b, culprit)
	return append(b, n.Text[:min(len(n.Text), noticeText)]...)
}

// Decode reads the notice of a rank of a job of that size.
func Decode(b []byte, size int) (Notice, error) {
	r := wire.Reader{B: b}
	version, class := r.U8("version of a notice"), int(r.U8("class of a notice"))
	departs := r.U8("kind of a notice")
	r.U8("notice")
	n := Notice{Group: r.U64("group of a notice"), Culprit: framework.NoPeer, Departs: departs == 1}
	origin, culprit := r.U32("origin of a notice"), r.U32("culprit of a notice")
	switch {
	case r.Err != nil:
		return Notice{}, r.Err
	case version != 1:
		return Notice{}, fmt.Errorf("%w: notice of version %d: expected 1", framework.ErrPeer, version)
	case departs > 1 || n.Departs && origin != culprit:
		return Notice{}, fmt.Errorf("%w: notice of kind %d about rank %d by rank %d: expected an end, or a departure of the rank itself", framework.ErrPeer, departs, culprit, origin)
	case origin >= uint32(size) || (culprit >= uint32(size) && culprit != noCulprit) || class > len(framework.Classes):
		return Notice{}, fmt.Errorf("%w: notice about rank %d by rank %d of %d: expected ranks of the job", framework.ErrPeer, culprit, origin, size)
	case len(r.B) > noticeText:
		return Notice{}, fmt.Errorf("%w: notice of %d bytes: expected at most %d", framework.ErrPeer, len(r.B), noticeText)
	}
	if class > 0 {
		n.Class = framework.Classes[class-1]
	}
	if culprit != noCulprit {
		n.Culprit = int(culprit)
	}
	n.Origin = int(origin)
	n.Text = strings.ToValidUTF8(string(r.B), "?")
	return n, nil
}
