package lanes

import (
	"encoding/binary"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
)

// Preamble writes what stands in front of a piece.
func (l *Lanes) Preamble(b []byte, c *kernelargs.Signature, bytes uint64) {
	binary.LittleEndian.PutUint64(b, c.Sequence)
	binary.LittleEndian.PutUint64(b[8:], c.Count)
	binary.LittleEndian.PutUint64(b[16:], uint64(c.Type&0xff|c.Op&0xff<<8|c.Root<<16)|uint64(c.Collective<<24|c.Algorithm&0xffffff)<<32)
	binary.LittleEndian.PutUint64(b[24:], bytes)
}

// Contradicted ends the communicator: ranks that met in different calls cannot go back.
func (l *Lanes) Contradicted(peer int, head []byte, bytes uint64) error {
	var theirs, ours [4]uint64
	for i := range theirs {
		theirs[i] = binary.LittleEndian.Uint64(head[8*i:])
	}
	var want [PreambleBytes]byte
	l.Preamble(want[:], &l.Call, bytes)
	for i := range ours {
		ours[i] = binary.LittleEndian.Uint64(want[8*i:])
	}
	cause := l.Disagreement(peer, theirs, ours)
	l.Comm.Abort(cause)
	return cause
}

// signatureOf takes a preamble apart.
func signatureOf(words [4]uint64) kernelargs.Signature {
	low, high := uint32(words[2]), uint32(words[2]>>32)
	return kernelargs.Signature{
		Sequence: words[0], Count: words[1], Type: low & 0xff, Op: low >> 8 & 0xff, Root: low >> 16,
		Collective: high >> 24, Algorithm: high & 0xffffff,
	}
}

// Disagreement is the error of preambles that differ.
func (l *Lanes) Disagreement(peer int, theirs, ours [4]uint64) error {
	a, b := signatureOf(theirs), signatureOf(ours)
	return &framework.Error{Op: "call " + fmt.Sprint(b.Sequence), Peer: peer, Err: fmt.Errorf(
		"%w: ranks disagree: rank %d: %s (call %d, a piece of %d bytes); rank %d: %s (a piece of %d bytes expected)", framework.ErrInvalid,
		peer, l.Describe(&a), a.Sequence, theirs[3], l.Comm.Rank(), l.Describe(&b), ours[3])}
}
