package intra

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// board is where ranks publish what they begin, and where kernels leave what the host is to know.
type board struct {
	comm      *comm.Communicator
	host      bool
	check     engine.Signatures
	symmetric *comm.Symmetric // scratch, which begins with mailboxes
	state     uintptr
	notes     *notes // nil on the host
	name      func(k collective.Kind, id uint32) string
	copying   func() bool // whether copies have been used
	pending   func() (busy, known bool, err error)
}

// found reads what a kernel has left in a word for the host.
func (b *board) found(offset uintptr) uint32 { return atomic.LoadUint32(b.note(offset)) }

func (b *board) note(offset uintptr) *uint32 {
	if b.host {
		return (*uint32)(kernelargs.At(b.state + offset))
	}
	return (*uint32)(kernelargs.At(b.notes.addr + offset))
}

// published reads the signature of a launch by rank from the mailbox in the scratch
// of another rank; false while it has not been published, or when the rank
// has gone on.
func (b *board) published(rank, reader int, sequence uint64) (kernelargs.Signature, bool) {
	base := b.entry(rank, reader, sequence)
	var w [kernelargs.SignatureBytes / 8]uint64
	for i := range w {
		w[i] = atomic.LoadUint64((*uint64)(kernelargs.At(base + uintptr(8*i))))
	}
	s, tag, ok := kernelargs.UnpackSignature(w)
	s.Sequence = sequence
	return s, ok && tag == uint32(sequence)
}

// entry is the address of the signature of a launch by rank in the scratch of another rank.
func (b *board) entry(rank, reader int, sequence uint64) uintptr {
	return b.row(rank, reader) + kernelargs.SignatureOffset + uintptr(sequence&1)*kernelargs.SignatureBytes
}

// holds reports whether an entry holds just these words: the usual case, for which nothing has to be unpacked.
func holds(entry uintptr, words *[kernelargs.SignatureBytes / 8]uint64) bool {
	for i, w := range words {
		if atomic.LoadUint64((*uint64)(kernelargs.At(entry+uintptr(8*i)))) != w {
			return false
		}
	}
	return true
}

// disagreement says which ranks launched what, as far as they have published it.
func (b *board) disagreement(sequence uint64) error {
	self, ranks := b.comm.Rank(), b.comm.Size()
	if ranks == 1 {
		return nil
	}
	own, ok := b.published(self, (self+1)%ranks, sequence)
	if !ok {
		return nil
	}
	var parts []string
	culprit := framework.NoPeer
	for r := range ranks {
		s, ok := own, true
		if r != self {
			s, ok = b.published(r, self, sequence)
		}
		if !ok {
			continue
		}
		if !kernelargs.SameCall(&s, &own) && culprit == framework.NoPeer {
			culprit = r
		}
		parts = append(parts, fmt.Sprintf("rank %d: %s", r, b.describe(&s)))
	}
	if culprit == framework.NoPeer {
		return nil
	}
	return &framework.Error{Op: "call " + fmt.Sprint(sequence), Peer: culprit,
		Err: fmt.Errorf("%w: ranks disagree: %s", framework.ErrInvalid, strings.Join(parts, "; "))}
}

// disagreementNow compares the entries that the ranks have published on a GPU of the call that this one
// began last, if it is one of those asked for; nil: any.
func (b *board) disagreementNow(of func(*kernelargs.Signature) bool) error {
	self, ranks := b.comm.Rank(), b.comm.Size()
	b.notes.mu.Lock()
	defer b.notes.mu.Unlock()
	if ranks == 1 || !b.notes.refresh(b.symmetric, self, ranks) {
		return nil
	}
	own, ok := b.latest(self, (self+1)%ranks)
	if !ok || of != nil && !of(&own) {
		return nil
	}
	return b.disagreement(own.Sequence)
}

// contradicted compares, behind a call on the host, the entries that ranks have published of it. Ranks that disagree
// on a type or a reduction can well meet each other's waits, and a result that is wrong must not pass for one. A
// rank publishes before it moves data, so a rank that had data of another has its signature. A rank that has
// published nothing yet is left out, and compares itself.
func (b *board) contradicted(own *kernelargs.Signature) error {
	self, words := b.comm.Rank(), own.Pack()
	for r := range b.comm.Size() {
		if r == self || holds(b.entry(r, self, own.Sequence), &words) {
			continue
		}
		if s, ok := b.published(r, self, own.Sequence); ok && !kernelargs.SameCall(&s, own) {
			return b.disagreement(own.Sequence)
		}
	}
	return nil
}

func (b *board) describe(s *kernelargs.Signature) string { return s.Describe(b.name) }

// misused says what is wrong with calls that are under way on a GPU.
func (b *board) misused() error {
	if peer := int(b.found(kernelargs.ElsewhereOffset)) - 1; peer >= 0 {
		return b.elsewhere(peer)
	}
	if m := b.found(kernelargs.MismatchOffset); m >= kernelargs.MismatchLength {
		return b.otherLength("an earlier call", m)
	}
	switch {
	case b.check == engine.SignaturesStall:
		return b.disagreementNow(nil)
	case b.check == engine.SignaturesAlways && b.copying():
		return b.disagreementNow(byCopies) // other kernels compare themselves
	}
	return nil
}

func byCopies(s *kernelargs.Signature) bool {
	return s.Algorithm == kernelargs.NameID(choose.Copy) || s.Algorithm == kernelargs.NameID(choose.CopyStaged)
}

// elsewhere is what the note of a kernel before copies means: another call or, if the calls
// are the same, other buffers.
func (b *board) elsewhere(peer int) error {
	if b.check != engine.SignaturesNever {
		if err := b.disagreementNow(nil); err != nil {
			return err
		}
	}
	return misplaced("registered buffers", peer)
}

func misplaced(op string, peer int) error {
	return &framework.Error{Op: op, Peer: peer,
		Err: fmt.Errorf("%w: its buffers are in other registered memory than those here: expected parts of one exchange, for the algorithm copy at the same offset",
			framework.ErrInvalid)}
}

// otherLength is the error for a mismatch of lengths that a kernel has noted.
func (b *board) otherLength(op string, mismatch uint32) error {
	word := func(offset uintptr) uint64 { return *(*uint64)(unsafe.Pointer(b.note(offset))) }
	return &framework.Error{Op: op, Peer: int(mismatch - kernelargs.MismatchLength),
		Err: fmt.Errorf("%w: its message has a length of %d bytes: expected %d as rank %d receives", framework.ErrInvalid,
			word(kernelargs.SentOffset), word(kernelargs.ExpectedOffset), b.comm.Rank())}
}

// latest reads the younger of the two signatures that a rank has published. It is
// false, with at most the sequence, when there is none or the rank is writing it.
func (b *board) latest(rank, reader int) (kernelargs.Signature, bool) {
	base := b.row(rank, reader) + kernelargs.SignatureOffset
	first := func(parity uintptr) uint32 {
		return uint32(atomic.LoadUint64((*uint64)(kernelargs.At(base+parity*kernelargs.SignatureBytes))) >> 32)
	}
	sequence := uint64(max(first(0), first(1)))
	if sequence == 0 {
		return kernelargs.Signature{}, false
	}
	if s, ok := b.published(rank, reader, sequence); ok {
		return s, true
	}
	return kernelargs.Signature{Sequence: sequence}, false
}

// dump writes the last call that each rank is known to have begun.
func (b *board) dump(w io.Writer) {
	ranks := b.comm.Size()
	if !b.host {
		b.notes.mu.Lock()
		defer b.notes.mu.Unlock()
		if ranks > 1 && !b.notes.refresh(b.symmetric, b.comm.Rank(), ranks) {
			fmt.Fprintln(w, "  collectives: what ranks have begun is in memory of a device that cannot be read")
			return
		}
	}
	for r := range ranks {
		reader := b.comm.Rank()
		if r == reader {
			reader = (r + 1) % ranks // the entries that this rank publishes are in the memory of others
		}
		if r == reader {
			return // this rank is alone
		}
		s, ok := b.latest(r, reader)
		switch {
		case ok:
			fmt.Fprintf(w, "  collectives: rank %d has begun call %d: %s\n", r, s.Sequence, b.describe(&s))
		case s.Sequence != 0:
			fmt.Fprintf(w, "  collectives: rank %d has begun call %d\n", r, s.Sequence)
		default:
			fmt.Fprintf(w, "  collectives: rank %d has begun no call\n", r)
		}
	}
}

// row is where the host reads the entries of rank for reader: one of the two is this rank,
// and on a GPU the last refresh says it.
func (b *board) row(rank, reader int) uintptr {
	if b.host {
		return b.symmetric.Peer(reader) + uintptr(rank)*kernelargs.MailboxBytes
	}
	base := b.notes.addr + boardOffset
	if rank == b.comm.Rank() {
		return base + uintptr(b.comm.Size()*kernelargs.MailboxBytes)
	}
	return base + uintptr(rank)*kernelargs.MailboxBytes
}

// noted is what kernels of earlier calls have left on a GPU, once: there a call returns
// before its kernel has begun.
func (b *board) noted() error {
	if b.host || b.notes == nil {
		return nil
	}
	if b.found(kernelargs.MismatchOffset)|b.found(kernelargs.ElsewhereOffset) == 0 {
		return nil
	}
	mismatch := atomic.SwapUint32(b.note(kernelargs.MismatchOffset), 0)
	elsewhere := atomic.SwapUint32(b.note(kernelargs.ElsewhereOffset), 0)
	switch {
	case mismatch|elsewhere == 0: // somebody else, who asked at the same time, reports it
		return nil
	case elsewhere != 0:
		err := fmt.Errorf("an earlier call: %w", b.elsewhere(int(elsewhere)-1))
		if b.copying() {
			b.comm.Abort(err) // kernels before copies stay until that
		}
		return err
	case mismatch >= kernelargs.MismatchLength:
		err := b.otherLength("an earlier call", mismatch)
		b.comm.Abort(err) // half of a message cannot be taken back, and kernels may wait for the rest
		return err
	}
	if err := b.disagreementNow(nil); err != nil {
		return fmt.Errorf("an earlier call: %w", err)
	}
	return fmt.Errorf("an earlier call: %w: ranks disagree on collective, count, type, operation, root or algorithm: no data was moved", framework.ErrInvalid)
}
