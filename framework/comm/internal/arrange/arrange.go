// Package arrange maps the memory of all ranks side by side.
package arrange

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

// Op is the operation as errors name it.
const Op = "arrange"

// Ranks are those of the communicator, as this one sees them.
type Ranks struct {
	Rank, Size int
	Device     device.Device
	Links      *negotiate.Negotiator
	Rounds     preamble.Rounds
}

// SideBySide is what lies under exchanged memory that was arranged.
type SideBySide struct {
	Own     *memory.Memory // the memory of this rank, as far as all ranks have as much
	peers   []negotiate.Remote
	whole   *memory.Memory // the allocation that this rank's memory lies in
	offset  uint64         // at which it begins there
	unit    uint64
	space   device.Arrangement
	placed  device.Memory // this rank's part of it
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

// New is for the memory of this rank, nil if it has none, and for what it will know of the others'. Private memory is as large
// as the rank says, whatever the others have.
func New(own *memory.Memory, peers []negotiate.Remote, private bool) *SideBySide {
	return &SideBySide{Own: own, peers: peers, private: private}
}

// Flat is where the memory of rank 0 is, and how far those of the others are behind it.
func (a *SideBySide) Flat() (base uintptr, stride uint64) {
	if a == nil {
		return 0, 0
	}
	return a.base, a.stride
}

// Make makes the mappings. lacks is why this rank cannot take part, which all learn.
func (a *SideBySide) Make(ctx context.Context, r Ranks) (lacks, err error) {
	reach, err := r.Links.ReachAll(ctx)
	if err != nil {
		return nil, err
	}
	if reach.Apart != nil { // on all ranks
		return reach.Apart, &preamble.Refusal{Err: reach.Apart}
	}
	links := make(map[int]*negotiate.Link)
	for _, peer := range r.Links.Others() {
		if links[peer], err = r.Links.MemoryLink(ctx, peer); err != nil { // it is there
			return nil, err
		}
	}
	lacks = a.begin(ctx, r, links)
	said, err := r.Rounds.Agree(ctx, Op, a.facts(lacks), lacks)
	if err != nil {
		return lacks, err
	}
	if err := a.layOut(said); err != nil {
		return err, &preamble.Refusal{Err: err} // on all ranks
	}
	lacks = a.reserve(r)
	if err := a.place(ctx, r, links, &lacks); err != nil {
		return lacks, err
	}
	var base []byte
	if lacks == nil {
		base = binary.LittleEndian.AppendUint64(nil, uint64(a.base))
	}
	if said, err = r.Rounds.Agree(ctx, Op, base, lacks); err != nil {
		return lacks, err
	}
	return nil, a.know(r.Rank, said)
}

// begin finds the allocation of this rank's memory, and has the transports know it.
func (a *SideBySide) begin(ctx context.Context, r Ranks, links map[int]*negotiate.Link) error {
	if err := memory.Usable(a.Own); err != nil {
		return err
	}
	d, ok := r.Device.(device.Arranger)
	if !ok {
		return fmt.Errorf("%w: %s does not map memory side by side", framework.ErrUnsupported, r.Device.Info().Device)
	}
	whole, offset, unit, err := d.Allocation(a.Own.Addr(), a.Own.Bytes())
	if err != nil {
		return err
	}
	a.whole, a.offset, a.unit = memory.New(whole, true), offset, unit
	for _, l := range links {
		if _, err := memory.Registration(ctx, a.whole, l.Transport, r.Device.Info().Device); err != nil {
			return err
		}
	}
	return nil
}

// facts encodes what this rank has.
func (a *SideBySide) facts(lacks error) []byte {
	if lacks != nil {
		return nil
	}
	b := make([]byte, 0, partBytes)
	for _, v := range []uint64{a.Own.Bytes(), a.offset, a.whole.Bytes(), a.unit} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// layOut decides, from what all ranks have said, where in its part each allocation begins.
func (a *SideBySide) layOut(said [][]byte) error {
	var unit, most uint64
	for rank, b := range said {
		if len(b) != partBytes {
			return &framework.Error{Op: Op, Peer: rank, Err: fmt.Errorf("%w: %d bytes, expected %d", framework.ErrPeer, len(b), partBytes)}
		}
		at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		p := part{bytes: at(0), offset: at(1), whole: at(2), unit: at(3)}
		if p.unit == 0 || p.whole == 0 || p.whole > 1<<46 || p.offset > p.whole || p.bytes > p.whole-p.offset {
			return &framework.Error{Op: Op, Peer: rank, Err: fmt.Errorf("%w: %d bytes at %d of %d in units of %d", framework.ErrPeer, p.bytes, p.offset, p.whole, p.unit)}
		}
		a.parts = append(a.parts, p)
		unit, a.lead = max(unit, p.unit), max(a.lead, p.offset)
	}
	for rank, p := range a.parts {
		if p.offset%unit != a.lead%unit {
			return &framework.Error{Op: Op, Peer: rank, Err: fmt.Errorf("%w: its memory begins %d bytes into its allocation, and that of another rank %d: expected the same in units of %d",
				framework.ErrUnsupported, p.offset, a.lead, unit)}
		}
		most = max(most, a.lead-p.offset+p.whole)
	}
	a.stride = (most + strideUnit - 1) / strideUnit * strideUnit
	return nil
}

// reserve takes addresses for all parts, and puts this rank's allocation there.
func (a *SideBySide) reserve(r Ranks) (err error) {
	if a.space, err = r.Device.(device.Arranger).Arrange(r.Size, a.stride); err != nil {
		return err
	}
	a.base = a.space.Base() + uintptr(a.lead)
	shares, err := a.whole.Export()
	if err != nil {
		return err
	}
	defer framework.Parcel{Shares: shares}.Close()
	a.placed, err = a.put(r.Rank, framework.Mapping{Role: framework.RolePeer, Peer: r.Rank, Shares: shares, Bytes: a.whole.Bytes()})
	return err
}

func (a *SideBySide) put(rank int, m framework.Mapping) (device.Memory, error) {
	return a.space.Put(rank, a.lead-a.parts[rank].offset, m)
}

// place trades keys with all others, and maps their memory. A mapping that fails is left to *lacks: the keys of the others are
// still taken, so that all ranks stay in step.
func (a *SideBySide) place(ctx context.Context, r Ranks, links map[int]*negotiate.Link, lacks *error) error {
	for _, peer := range r.Links.Others() {
		if err := r.Links.SendKey(ctx, links[peer], peer, a.whole); err != nil {
			return err
		}
	}
	for _, peer := range r.Links.Others() {
		key, bytes, err := r.Links.RecvBareKey(ctx, peer)
		if err != nil {
			return err
		}
		if *lacks == nil {
			a.peers[peer], *lacks = r.Links.Attach(ctx, links[peer], peer, negotiate.Reached{
				Key: key, Bytes: bytes, Own: a.whole,
				Map: func(m framework.Mapping) (device.Memory, error) { return a.put(peer, m) },
			})
		}
		key.Close()
	}
	return nil
}

// know notes where everything is, once all ranks have mapped all.
func (a *SideBySide) know(rank int, said [][]byte) error {
	least := a.parts[rank].bytes
	for peer, b := range said {
		if len(b) != 8 {
			return &framework.Error{Op: Op, Peer: peer, Err: fmt.Errorf("%w: address of %d bytes, expected 8", framework.ErrPeer, len(b))}
		}
		r := &a.peers[peer]
		r.Addr = a.base + uintptr(peer)*uintptr(a.stride)
		r.Own = uintptr(binary.LittleEndian.Uint64(b)) + uintptr(rank)*uintptr(a.stride)
		r.Bytes = a.parts[peer].bytes
		least = min(least, r.Bytes)
	}
	if !a.private && least < a.Own.Bytes() { // collectives may use what all ranks have
		a.Own = memory.New(first{a.Own.Memory, least}, false)
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

// Close gives back what a rank has made for itself.
func (a *SideBySide) Close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	var errs []error
	if a.placed != nil {
		errs = append(errs, a.placed.Close())
	}
	if a.space != nil {
		errs = append(errs, a.space.Close())
	}
	if a.whole != nil {
		errs = append(errs, memory.Shut(ctx, a.whole))
	}
	a.placed, a.space, a.whole = nil, nil, nil
	return errors.Join(errs...)
}
