// Package meeting asks the process that made a unique id where rank 0 listens.
package meeting

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Addresses is how many addresses of rank 0 a question or an answer has room for.
const Addresses = 3

// Token is the length of the token without which nothing is answered.
const Token = 14

const (
	questionBytes = 4 + 4 + Token + 2 + 8 + addressBytes*Addresses + 2
	answerBytes   = 4 + 4 + addressBytes*Addresses + 2
	addressBytes  = 18

	listens = 1 // rank 0 says where
	asks    = 2 // another rank asks where that is
)

// Question is that of a rank.
type Question struct {
	Token      []byte
	Rank, Size int
	Listening  []netip.AddrPort // of rank 0; none for the others
}

// Ask sends the question, and returns where rank 0 listens once that is known there.
func (q Question) Ask(conn net.Conn) ([]netip.AddrPort, error) {
	answer := make([]byte, answerBytes)
	_, err := conn.Write(q.encode())
	if err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the process that made the unique id, at %v, has ended: it must live until all ranks have joined: %w", framework.ErrPeer, conn.RemoteAddr(), err)
	}
	return q.parse(answer)
}

// encode has the layout of struct question in nccl/src/meeting.c.
func (q Question) encode() []byte {
	b := make([]byte, questionBytes)
	copy(b, "MSMQ")
	b[4], b[5], b[6] = 1, asks, byte(len(q.Listening))
	if len(q.Listening) > 0 {
		b[5] = listens
	}
	copy(b[8:], q.Token)
	binary.BigEndian.PutUint32(b[24:], uint32(q.Rank))
	binary.BigEndian.PutUint32(b[28:], uint32(q.Size))
	for i, a := range q.Listening {
		PutAddress(b[32+addressBytes*i:], a)
	}
	return b
}

// PutAddress writes an address as unique ids have it.
func PutAddress(b []byte, a netip.AddrPort) {
	ip := a.Addr().As16()
	copy(b, ip[:])
	binary.BigEndian.PutUint16(b[16:], a.Port())
}

// Address reads what PutAddress has written.
func Address(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[16:]))
}

// parse reads an answer, which has the layout of struct answer in nccl/src/meeting.c.
func (q Question) parse(b []byte) ([]netip.AddrPort, error) {
	if string(b[:4]) != "MSMA" || b[4] != 1 {
		return nil, fmt.Errorf("%w: answer %x of the meeting place: expected one that begins with \"MSMA\" and version 1", framework.ErrPeer, b[:8])
	}
	switch b[5] {
	case 0:
	case 1:
		return nil, fmt.Errorf("%w: the process that made the unique id does not know it any more: all ranks of its job have joined already, and an id serves one job", framework.ErrInvalid)
	case 2:
		return nil, fmt.Errorf("%w: another process has come as rank %d with this unique id: expected one process for each rank, and a new id for each job", framework.ErrInvalid, q.Rank)
	case 3:
		return nil, fmt.Errorf("%w: this rank expects %d ranks, and others with the same unique id another number", framework.ErrInvalid, q.Size)
	default:
		return nil, fmt.Errorf("%w: answer %d of the meeting place: expected 0 to 3", framework.ErrPeer, b[5])
	}
	if b[6] == 0 || b[6] > Addresses {
		return nil, fmt.Errorf("%w: the meeting place gave %d addresses of rank 0: expected 1 to %d", framework.ErrPeer, b[6], Addresses)
	}
	out := make([]netip.AddrPort, b[6])
	for i := range out {
		out[i] = Address(b[8+addressBytes*i:])
	}
	return out, nil
}
