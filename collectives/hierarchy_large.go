package collectives

import (
	"context"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// leastShare and piecesOfCall set the size of a piece: small enough that there are some
// to overlap, large enough that a rank's share of it is worth a message.
const (
	leastShare   = 256 << 10
	piecesOfCall = 8
)

// twoSteps is the share from which on an exchange between more than two hosts goes in two
// steps (hierarchy_slices.go): more messages, and fewer bytes.
const twoSteps = 16 << 10

// piece is how many elements of a vector are worked on at a time: so that the share of a
// rank fits a slot, and divided evenly by all hosts where that is possible.
func (h *hierarchy) piece(count, element uint64) uint64 {
	fewest := uint64(h.Fewest)
	bytes := min(h.ports.Piece, max(leastShare, count*element/fewest/piecesOfCall))
	n := max(1, bytes/element) * fewest
	if n > h.Multiple {
		n = n / h.Multiple * h.Multiple
	}
	return n
}

// exchanged is one piece of a vector under way between hosts.
type exchanged struct {
	course
	at, count uint64 // elements of the vector
	share     []byte // what the ranks of this host have of this rank's share; later the result
}

// course says which hosts give and which get. The zero value is a call without a root, in
// which all do both.
type course struct {
	rooted bool
	gives  bool // it is a broadcast: the root's host gives, the others get. Else a reduction: the reverse
	home   int  // the root's host
}

// gets reports whether a host is to have the result.
func (way course) gets(g int) bool { return !way.rooted || way.gives != (g == way.home) }

// spare reports whether this rank reduces for a root, and has no use for the result.
func (h *hierarchy) spare(c *Call, way course) bool {
	return way.rooted && h.ports.Comm.Rank() != c.Root
}

// slices reports whether a host has slices of its own in an exchange in two steps.
func (way course) slices(g int) bool { return !way.rooted || g != way.home }

func (h *hierarchy) allReduceLarge(ctx context.Context, c *Call) error {
	return h.reduceTo(ctx, c, course{})
}

// reduceTo takes each piece through two stages or three:
//
//	begin   a reduce-scatter inside the host; the shares are sent to the other hosts
//	middle  in two steps alone: this rank's slices are added up, and go to the hosts that get them
//	end     the share is completed by what others sent, and an all-gather inside
//
// While a piece is between hosts, the next is begun. A rank is never two pieces ahead of
// another of its host, nor of those on other hosts that it exchanges with, so that a slot is
// free before it is needed. A root waits for those, and they for nobody but each other.
func (h *hierarchy) reduceTo(ctx context.Context, c *Call, way course) error {
	element := uint64(c.Type.Size())
	size := h.piece(c.Count, element)
	pieces := int((c.Count + size - 1) / size)
	split, behind := h.stages(size, element)
	var under [3]exchanged
	for k := range pieces + behind {
		if k < pieces {
			at := uint64(k) * size
			room := h.spaces[spaceShare+k%3].bytes(placement.Share(size, h.Size()) * element)
			under[k%3] = exchanged{course: way, at: at, count: min(size, c.Count-at), share: room}
			if err := h.begin(ctx, c, &under[k%3], split); err != nil {
				return err
			}
		}
		if j := k - 1; split && j >= 0 && j < pieces {
			if err := h.middle(ctx, c, &under[j%3]); err != nil {
				return err
			}
		}
		if j := k - behind; j >= 0 {
			if err := h.end(ctx, c, &under[j%3], split); err != nil {
				return err
			}
		}
	}
	return nil
}

// stages says whether an exchange goes in two steps, and how many stages there are
// between the beginning of a piece and its end.
func (h *hierarchy) stages(size, element uint64) (split bool, behind int) {
	if len(h.Hosts) > 2 && size/uint64(h.Most)*element >= twoSteps {
		return true, 2
	}
	return false, 1
}

// begin reduces a piece inside the host, and sends this rank's share.
func (h *hierarchy) begin(ctx context.Context, c *Call, x *exchanged, split bool) error {
	element := uint64(c.Type.Size())
	if err := h.scatter(c, lanes.View(unsafe.Add(c.Input, x.at*element), x.count*element), x.share); err != nil {
		return err
	}
	own := h.Mine(x.count)
	x.share = x.share[:(own.To-own.From)*element]
	return h.send(ctx, x, element, split)
}

// send gives what this rank has of a piece to the other hosts.
func (h *hierarchy) send(ctx context.Context, x *exchanged, element uint64, split bool) error {
	if !split {
		return h.sendShare(ctx, x.course, x.count, element, x.share)
	}
	return h.sendSlices(ctx, x, element)
}

// complete makes this rank's share of a piece the result, where that is wanted.
func (h *hierarchy) complete(ctx context.Context, c *Call, x *exchanged, split bool) error {
	if !x.gets(h.Host) {
		return nil
	}
	if !split {
		return h.sumShare(ctx, c, x.count, x.share, x.share)
	}
	return h.takeSlices(ctx, x, uint64(c.Type.Size()))
}

// end completes this rank's share, and gathers the shares of the host. Kernels that gather
// do it for all of a host, where a root is alone in having an output.
func (h *hierarchy) end(ctx context.Context, c *Call, x *exchanged, split bool) error {
	if err := h.complete(ctx, c, x, split); err != nil || !x.gets(h.Host) {
		return err
	}
	element := uint64(c.Type.Size())
	if h.spare(c, x.course) {
		return h.gather(c, x.share, x.count, h.spaces[spacePadded].bytes(x.count*element))
	}
	return h.gather(c, x.share, x.count, lanes.View(unsafe.Add(c.Output, x.at*element), x.count*element))
}

// sum reduces what the hosts have in their order: own is that of this one, and theirs
// hands that of another to add.
func (h *hierarchy) sum(c *Call, own, to []byte, theirs func(g int, add func(b []byte)) error) error {
	sum := h.startSum(c, uint64(len(own)))
	for g := range h.Hosts {
		if g == h.Host {
			sum.Add(own)
		} else if err := theirs(g, sum.Add); err != nil {
			return err
		}
	}
	sum.Store(to)
	return nil
}

// sumShare reduces what the hosts have of this rank's share of a vector.
func (h *hierarchy) sumShare(ctx context.Context, c *Call, count uint64, own, to []byte) error {
	if len(own) == 0 {
		return nil
	}
	return h.sum(c, own, to, func(g int, add func(b []byte)) error {
		theirs := h.spaces[spaceTheirs].bytes(uint64(len(own)))
		if err := h.takeShare(ctx, count, uint64(c.Type.Size()), g, theirs); err != nil {
			return err
		}
		add(theirs)
		return nil
	})
}

// sendShare gives this rank's share of a vector to those of the other hosts that have
// some of it, and are to have it.
func (h *hierarchy) sendShare(ctx context.Context, way course, count, element uint64, b []byte) error {
	return h.OtherHosts(func(g int) error {
		if !way.gets(g) {
			return nil
		}
		return h.sendTo(ctx, count, element, g, b)
	})
}

func (h *hierarchy) sendTo(ctx context.Context, count, element uint64, g int, b []byte) error {
	from := h.Mine(count).From
	return h.Overlaps(count, g, func(s placement.Span) error {
		return h.ports.Post(ctx, s.Rank, b[(s.From-from)*element:(s.To-from)*element])
	})
}

// takeShare receives what the ranks of another host have of this rank's share.
func (h *hierarchy) takeShare(ctx context.Context, count, element uint64, g int, to []byte) error {
	from := h.Mine(count).From
	return h.Overlaps(count, g, func(s placement.Span) error {
		at := to[(s.From-from)*element : (s.To-from)*element]
		return h.ports.Take(ctx, s.Rank, uint64(len(at)), func(b []byte) { copy(at, b) })
	})
}

// scatter reduces a vector inside the host. This rank's share goes to room, which has
// space for the largest.
func (h *hierarchy) scatter(c *Call, in, room []byte) error {
	element := uint64(c.Type.Size())
	count := uint64(len(in)) / element
	each := placement.Share(count, h.Size())
	if whole := each * uint64(h.Size()); whole != count {
		padded := h.spaces[spacePadded].bytes(whole * element)
		clear(padded[copy(padded, in):])
		in = padded
	}
	op, o := h.innerOp(c)
	return h.named(h.inside.ReduceScatter(pointerTo(in), pointerTo(room), int(each), c.Type, op, o))
}

// gather puts the shares of the ranks of the host together. Memory for a share is that
// of the largest, whatever it holds.
func (h *hierarchy) gather(c *Call, own []byte, count uint64, out []byte) error {
	element := uint64(c.Type.Size())
	each := placement.Share(count, h.Size())
	to, whole := out, each*uint64(h.Size())
	if whole != count {
		to = h.spaces[spacePadded].bytes(whole * element)
	}
	if err := h.named(h.inside.AllGather(pointerTo(own), pointerTo(to), int(each), c.Type, nil)); err != nil {
		return err
	}
	if whole != count {
		copy(out, to)
	}
	return nil
}
