package collectives

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
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
func (c *Comm) published(rank, reader int, sequence uint64) (kernelargs.Signature, bool) {
	base := c.row(rank, reader) + kernelargs.SignatureOffset + uintptr(sequence&1)*kernelargs.SignatureBytes
	var w [kernelargs.SignatureBytes / 8]uint64
	for i := range w {
		w[i] = atomic.LoadUint64((*uint64)(at(base + uintptr(8*i))))
	}
	s, tag, ok := kernelargs.UnpackSignature(w)
	s.Sequence = sequence
	return s, ok && tag == uint32(sequence)
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
		if !kernelargs.SameCall(&s, &own) && culprit == framework.NoPeer {
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
func (c *Comm) disagreementNow(of func(*kernelargs.Signature) bool) error {
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
		if s, ok := c.published(r, int(c.args.Rank), own.Sequence); ok && !kernelargs.SameCall(&s, own) {
			return c.disagreement(own.Sequence)
		}
	}
	return nil
}

func (c *Comm) describe(s *kernelargs.Signature) string {
	if *s == lanes.OfMessages() {
		return "a message" // its pieces do not say of what
	}
	return s.Describe(func(k collective.Kind, id uint32) string {
		if k > 0 && k < collectives {
			for _, a := range c.algorithms[k] {
				if a.id == id {
					return a.name
				}
			}
		}
		return ""
	})
}

// misused says what is wrong with calls that are under way on a GPU.
func (c *Comm) misused() error {
	if peer := int(c.found(kernelargs.ElsewhereOffset)) - 1; peer >= 0 {
		return c.elsewhere(peer)
	}
	if m := c.found(kernelargs.MismatchOffset); m >= kernelargs.MismatchLength {
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

func byCopies(s *kernelargs.Signature) bool {
	return s.Algorithm == kernelargs.NameID(copyName) || s.Algorithm == kernelargs.NameID(stagedName)
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
