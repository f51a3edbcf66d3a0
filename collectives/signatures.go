package collectives

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// found reads what a kernel has left in a word for the host.
func (c *Comm) found(offset uintptr) uint32 { return atomic.LoadUint32(c.note(offset)) }

func (c *Comm) note(offset uintptr) *uint32 {
	if c.host {
		return (*uint32)(at(c.state.Addr() + offset))
	}
	return (*uint32)(at(c.notes.addr + offset))
}

// published reads the signature of a launch by rank from the mailbox in the scratch
// of another rank; false while it has not been published, or when the rank
// has gone on.
func (c *Comm) published(rank, reader int, sequence uint64) (signature, bool) {
	base := c.row(rank, reader) + signatureOffset + uintptr(sequence&1)*signatureBytes
	var w [signatureBytes / 8]uint64
	for i := range w {
		w[i] = atomic.LoadUint64((*uint64)(at(base + uintptr(8*i))))
	}
	s, tag, ok := unpackSignature(w)
	s.Sequence = sequence
	return s, ok && tag == uint32(sequence)
}

// unpackSignature takes apart the two packets that kernels publish: four words of 32
// bits, each with a tag, the low half of the sequence. It is false while the tags
// differ.
func unpackSignature(w [signatureBytes / 8]uint64) (s signature, tag uint32, ok bool) {
	tag = uint32(w[0] >> 32)
	ok = tag != 0
	for _, x := range w {
		ok = ok && uint32(x>>32) == tag
	}
	s.Count = w[0]&math.MaxUint32 | w[1]<<32
	low, high := uint32(w[2]), uint32(w[3])
	s.Type, s.Op, s.Root = low&0xff, low>>8&0xff, low>>16
	s.Collective, s.Algorithm = high>>24, high&0xffffff
	return s, tag, ok
}

// disagreement says which ranks launched what, as far as they have told.
func (c *Comm) disagreement(sequence uint64) error {
	self, ranks := c.comm.Rank(), c.comm.Size()
	if ranks == 1 {
		return nil
	}
	own, ok := c.published(self, (self+1)%ranks, sequence)
	if !ok {
		return nil
	}
	var parts []string
	culprit := framework.NoPeer
	for r := range ranks {
		s, ok := own, true
		if r != self {
			s, ok = c.published(r, self, sequence)
		}
		if !ok {
			continue
		}
		if !same(&s, &own) && culprit == framework.NoPeer {
			culprit = r
		}
		parts = append(parts, fmt.Sprintf("rank %d: %s", r, c.describe(&s)))
	}
	if culprit == framework.NoPeer {
		return nil
	}
	return &framework.Error{Op: "call " + fmt.Sprint(sequence), Peer: culprit,
		Err: fmt.Errorf("%w: ranks disagree: %s", framework.ErrInvalid, strings.Join(parts, "; "))}
}

// disagreementNow compares what the ranks have told on a GPU of the call that this one
// began last, if it is one of those asked for; nil: any.
func (c *Comm) disagreementNow(of func(*signature) bool) error {
	self, ranks := c.comm.Rank(), c.comm.Size()
	c.notes.mu.Lock()
	defer c.notes.mu.Unlock()
	if ranks == 1 || !c.notes.refresh(c.symmetric, self, ranks) {
		return nil
	}
	own, ok := c.latest(self, (self+1)%ranks)
	if !ok || of != nil && !of(&own) {
		return nil
	}
	return c.disagreement(own.Sequence)
}

// contradicted compares, behind a call on the host, what ranks have told of it. Ranks
// that disagree on a type or a reduction can well meet each other's waits, and a
// result that is wrong must not pass for one. A rank tells before it moves data, so
// whoever had data of another has its signature. Who has told nothing yet is left out,
// and compares itself.
func (c *Comm) contradicted() error {
	own := &c.args.Signature
	for r := range int(c.args.Ranks) {
		if r == int(c.args.Rank) {
			continue
		}
		if s, ok := c.published(r, int(c.args.Rank), own.Sequence); ok && !same(&s, own) {
			return c.disagreement(own.Sequence)
		}
	}
	return nil
}

func same(a, b *signature) bool {
	x, y := *a, *b
	x.Sequence, y.Sequence = 0, 0
	return x == y
}

func (c *Comm) describe(s *signature) string {
	if *s == ofMessages() {
		return "a message" // its pieces do not say of what
	}
	name := fmt.Sprintf("algorithm %#x", s.Algorithm)
	if s.Collective > 0 && s.Collective < collectives {
		for _, a := range c.algorithms[s.Collective] {
			if a.id == s.Algorithm {
				name = a.name
			}
		}
	}
	k := Collective(s.Collective)
	text := k.String()
	if k != Barrier {
		text += fmt.Sprintf(" of %d %v", s.Count, kernel.DataType(s.Type))
	}
	if k.reduces() {
		text += " " + kernel.Op(s.Op).String()
	}
	if k.rooted() {
		text += fmt.Sprintf(" root %d", s.Root)
	}
	return text + " by " + name
}

// misused says what is wrong with calls that are under way on a GPU.
func (c *Comm) misused() error {
	if peer := int(c.found(elsewhereOffset)) - 1; peer >= 0 {
		return c.elsewhere(peer)
	}
	if m := c.found(mismatchOffset); m >= mismatchLength {
		return c.otherLength("an earlier call", m)
	}
	switch {
	case c.opts.Signatures == SignaturesStall:
		return c.disagreementNow(nil)
	case c.opts.Signatures == SignaturesAlways && c.copier != nil && c.copier.used.Load():
		return c.disagreementNow(byCopies) // other kernels compare themselves
	}
	return nil
}

func byCopies(s *signature) bool {
	return s.Algorithm == nameID(copyName) || s.Algorithm == nameID(stagedName)
}

// elsewhere is what the note of a kernel before copies means: another call or, if the calls
// are the same, other buffers.
func (c *Comm) elsewhere(peer int) error {
	if c.opts.Signatures != SignaturesNever {
		if err := c.disagreementNow(nil); err != nil {
			return err
		}
	}
	return misplaced("registered buffers", peer)
}

// fingerprint is of all that ranks must have in common.
func (s *signature) fingerprint() (f uint64) {
	for _, v := range [...]uint64{s.Count, uint64(s.Collective), uint64(s.Algorithm), uint64(s.Type), uint64(s.Op), uint64(s.Root)} {
		f = (f ^ v) * 0x9e3779b97f4a7c15
		f ^= f >> 32
	}
	return f
}

// at turns the address of mapped memory, which Go does not manage, into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
