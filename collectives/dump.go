package collectives

import (
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"io"
	"sync/atomic"
)

// Dump writes how algorithms are chosen, and the last call that each rank is known to
// have begun: the ranks that are behind are the ones that the others wait for. It may
// be called at any time before Close, also while a call is in progress. A dump of the
// communicator includes this one.
func (c *Comm) Dump(w io.Writer) {
	if !c.host && c.basis != "" {
		fmt.Fprintf(w, "  collectives: unless the configuration has a row algorithms are chosen by %s\n", c.basis)
	}
	if c.opts.Signatures == SignaturesNever {
		fmt.Fprintln(w, "  collectives: ranks do not tell what they begin: check.signatures is never")
		return
	}
	ranks := c.comm.Size()
	if !c.host {
		c.notes.mu.Lock()
		defer c.notes.mu.Unlock()
		if ranks > 1 && !c.notes.refresh(c.symmetric, c.comm.Rank(), ranks) {
			fmt.Fprintln(w, "  collectives: what ranks have begun is in memory of a device that cannot be read")
			return
		}
	}
	for r := range ranks {
		reader := c.comm.Rank()
		if r == reader {
			reader = (r + 1) % ranks // what this rank tells is in the memory of others
		}
		if r == reader {
			return // nobody to tell
		}
		s, ok := c.latest(r, reader)
		switch {
		case ok:
			fmt.Fprintf(w, "  collectives: rank %d has begun call %d: %s\n", r, s.Sequence, c.describe(&s))
		case s.Sequence != 0:
			fmt.Fprintf(w, "  collectives: rank %d has begun call %d\n", r, s.Sequence)
		default:
			fmt.Fprintf(w, "  collectives: rank %d has begun no call\n", r)
		}
	}
}

// latest reads the younger of the two signatures that a rank has published. It is
// false, with at most the sequence, when there is none or the rank is writing it.
func (c *Comm) latest(rank, reader int) (kernelargs.Signature, bool) {
	base := c.row(rank, reader) + kernelargs.SignatureOffset
	first := func(parity uintptr) uint32 {
		return uint32(atomic.LoadUint64((*uint64)(at(base+parity*kernelargs.SignatureBytes))) >> 32)
	}
	sequence := uint64(max(first(0), first(1)))
	if sequence == 0 {
		return kernelargs.Signature{}, false
	}
	if s, ok := c.published(rank, reader, sequence); ok {
		return s, true
	}
	return kernelargs.Signature{Sequence: sequence}, false
}
