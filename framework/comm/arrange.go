package comm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// sideBySide is what lies under exchanged memory that was arranged.
type sideBySide struct {
	whole   *Memory // the allocation that this rank's memory lies in
	offset  uint64  // at which it begins there
	unit    uint64
	space   device.Arrangement
	own     device.Memory // this rank's part of it
	base    uintptr       // where rank 0's memory is
	stride  uint64
	lead    uint64 // from the start of each part to the memory there
	parts   []part // of all ranks
	private bool
}

// part is what a rank says of its memory.
type part struct{ bytes, offset, whole, unit uint64 }

const partBytes = 4 * 8

// strideUnit is what distances are a multiple of: kernels add them to the upper half of an address.
const strideUnit = 4 << 30

// Arrange is Exchange with the memory of all ranks side by side: that of rank r is r times a stride behind that of rank
// 0. The stride is a multiple of 4 GiB. Each rank's own memory is there, too, beside where it was. This needs devices that
// are a [device.Arranger], memory links between all ranks, and memory in allocations that can be mapped at a chosen address, at
// offsets that are alike. If a rank lacks any of that, or comes without memory (m is nil), all ranks get
// ErrUnsupported, and the communicator remains usable. Find returns the result up to the size of the smallest part,
// unless it is private. Collective.
func Arrange(ctx context.Context, c *Communicator, m *Memory, private bool) (*Symmetric, error) {
	s := &Symmetric{comm: c, own: m, peers: make([]negotiate.Remote, c.Size()), side: &sideBySide{private: private}}
	var lacks error
	err := c.setUp(ctx, opArrange, func(ctx context.Context) (err error) {
		lacks, err = s.arrange(ctx, c)
		if err == nil {
			err = s.lifetime.Begin(&c.life.Parts, s, s.shut, memory.Users(m))
		}
		if err != nil {
			c.life.Rollback(s.release)
			return err
		}
		if c.buffers.number(s); !private {
			c.buffers.add(s)
		}
		return nil
	})
	var r *preamble.Refusal
	if errors.As(err, &r) && (lacks != nil || !errors.Is(err, framework.ErrInvalid)) {
		return nil, fmt.Errorf("%w: %w", framework.ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Flat returns where the memory of rank 0 is and how far those of the others are behind it, of Arrange; 0 and 0: of Exchange.
func (s *Symmetric) Flat() (base uintptr, stride uint64) {
	if s.side == nil {
		return 0, 0
	}
	return s.side.base, s.side.stride
}

// arrange makes the mappings. lacks is why this rank cannot take part, which all learn.
func (s *Symmetric) arrange(ctx context.Context, c *Communicator) (lacks, err error) {
	reach, err := c.links.ReachAll(ctx)
	if err != nil {
		return nil, err
	}
	if reach.Apart != nil { // on all ranks
		return reach.Apart, &preamble.Refusal{Err: reach.Apart}
	}
	links := make(map[int]*negotiate.Link)
	for _, peer := range c.links.Others() {
		if links[peer], err = c.links.MemoryLink(ctx, peer); err != nil { // it is there
			return nil, err
		}
	}
	lacks = s.side.begin(ctx, c, s.own, links)
	said, err := c.rounds.Agree(ctx, opArrange, s.side.facts(s.own, lacks), lacks)
	if err != nil {
		return lacks, err
	}
	if err := s.side.layOut(said); err != nil {
		return err, &preamble.Refusal{Err: err} // on all ranks
	}
	lacks = s.side.reserve(c)
	if err := s.place(ctx, c, links, &lacks); err != nil {
		return lacks, err
	}
	var base []byte
	if lacks == nil {
		base = binary.LittleEndian.AppendUint64(nil, uint64(s.side.base))
	}
	if said, err = c.rounds.Agree(ctx, opArrange, base, lacks); err != nil {
		return lacks, err
	}
	return nil, s.know(said)
}

// begin finds the allocation of m, and has the transports know it.
func (a *sideBySide) begin(ctx context.Context, c *Communicator, m *Memory, links map[int]*negotiate.Link) error {
	if err := memory.Usable(m); err != nil {
		return err
	}
	d, ok := c.dev.(device.Arranger)
	if !ok {
		return fmt.Errorf("%w: %s does not map memory side by side", framework.ErrUnsupported, c.dev.Info().Device)
	}
	whole, offset, unit, err := d.Allocation(m.Addr(), m.Bytes())
	if err != nil {
		return err
	}
	a.whole, a.offset, a.unit = memory.New(whole, true), offset, unit
	for _, l := range links {
		if _, err := memory.Registration(ctx, a.whole, l.Transport, c.dev.Info().Device); err != nil {
			return err
		}
	}
	return nil
}

// facts encodes what this rank has.
func (a *sideBySide) facts(m *Memory, lacks error) []byte {
	if lacks != nil {
		return nil
	}
	b := make([]byte, 0, partBytes)
	for _, v := range []uint64{m.Bytes(), a.offset, a.whole.Bytes(), a.unit} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// layOut decides, from what all ranks have said, where in its part each allocation begins.
func (a *sideBySide) layOut(said [][]byte) error {
	var unit, most uint64
	for rank, b := range said {
		if len(b) != partBytes {
			return &framework.Error{Op: opArrange, Peer: rank, Err: fmt.Errorf("%w: %d bytes, expected %d", framework.ErrPeer, len(b), partBytes)}
		}
		at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		p := part{bytes: at(0), offset: at(1), whole: at(2), unit: at(3)}
		if p.unit == 0 || p.whole == 0 || p.whole > 1<<46 || p.offset > p.whole || p.bytes > p.whole-p.offset {
			return &framework.Error{Op: opArrange, Peer: rank, Err: fmt.Errorf("%w: %d bytes at %d of %d in units of %d", framework.ErrPeer, p.bytes, p.offset, p.whole, p.unit)}
		}
		a.parts = append(a.parts, p)
		unit, a.lead = max(unit, p.unit), max(a.lead, p.offset)
	}
	for rank, p := range a.parts {
		if p.offset%unit != a.lead%unit {
			return &framework.Error{Op: opArrange, Peer: rank, Err: fmt.Errorf("%w: its memory begins %d bytes into its allocation, and that of another rank %d: expected the same in units of %d",
				framework.ErrUnsupported, p.offset, a.lead, unit)}
		}
		most = max(most, a.lead-p.offset+p.whole)
	}
	a.stride = (most + strideUnit - 1) / strideUnit * strideUnit
	return nil
}

// reserve takes addresses for all parts, and puts this rank's allocation there.
func (a *sideBySide) reserve(c *Communicator) (err error) {
	if a.space, err = c.dev.(device.Arranger).Arrange(c.Size(), a.stride); err != nil {
		return err
	}
	a.base = a.space.Base() + uintptr(a.lead)
	shares, err := a.whole.Export()
	if err != nil {
		return err
	}
	defer framework.Parcel{Shares: shares}.Close()
	a.own, err = a.put(c.Rank(), framework.Mapping{Role: framework.RolePeer, Peer: c.Rank(), Shares: shares, Bytes: a.whole.Bytes()})
	return err
}

func (a *sideBySide) put(rank int, m framework.Mapping) (device.Memory, error) {
	return a.space.Put(rank, a.lead-a.parts[rank].offset, m)
}

// place trades keys with all others, and maps their memory. A mapping that fails is left to *lacks: the keys of the others are
// still taken, so that all ranks stay in step.
func (s *Symmetric) place(ctx context.Context, c *Communicator, links map[int]*negotiate.Link, lacks *error) error {
	for _, peer := range c.links.Others() {
		if err := c.links.SendKey(ctx, links[peer], peer, s.side.whole); err != nil {
			return err
		}
	}
	for _, peer := range c.links.Others() {
		key, bytes, err := c.links.RecvBareKey(ctx, peer)
		if err != nil {
			return err
		}
		if *lacks == nil {
			s.peers[peer], *lacks = c.links.Attach(ctx, links[peer], peer, negotiate.Reached{
				Key: key, Bytes: bytes, Own: s.side.whole,
				Map: func(m framework.Mapping) (device.Memory, error) { return s.side.put(peer, m) },
			})
		}
		key.Close()
	}
	return nil
}

// know notes where everything is, once all ranks have mapped all.
func (s *Symmetric) know(said [][]byte) error {
	a, rank := s.side, s.comm.Rank()
	least := a.parts[rank].bytes
	for peer, b := range said {
		if len(b) != 8 {
			return &framework.Error{Op: opArrange, Peer: peer, Err: fmt.Errorf("%w: address of %d bytes, expected 8", framework.ErrPeer, len(b))}
		}
		r := &s.peers[peer]
		r.Addr = a.base + uintptr(peer)*uintptr(a.stride)
		r.Own = uintptr(binary.LittleEndian.Uint64(b)) + uintptr(rank)*uintptr(a.stride)
		r.Bytes = a.parts[peer].bytes
		least = min(least, r.Bytes)
	}
	if !a.private && least < s.own.Bytes() { // collectives may use what all ranks have
		s.own = memory.New(first{s.own.Memory, least}, false)
	}
	return nil
}

// first are the first bytes of memory.
type first struct {
	device.Memory
	bytes uint64
}

// Bytes implements device.Memory.
func (f first) Bytes() uint64 { return f.bytes }

// close gives back what a rank has made for itself.
func (a *sideBySide) close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	var errs []error
	if a.own != nil {
		errs = append(errs, a.own.Close())
	}
	if a.space != nil {
		errs = append(errs, a.space.Close())
	}
	if a.whole != nil {
		errs = append(errs, memory.Shut(ctx, a.whole))
	}
	a.own, a.space, a.whole = nil, nil, nil
	return errors.Join(errs...)
}
