package collectives

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
)

// apart refuses buffers that overlap in another way than in place: ranks and blocks read one while they write the
// other, in an order that differs between algorithms.
func (j *job) apart(rank int, element uint64) error {
	in, out := uint64(uintptr(j.input)), uint64(uintptr(j.output))
	inBytes, outBytes := j.inCount*element, j.outCount*element
	if inBytes == 0 || outBytes == 0 || in >= out+outBytes || out >= in+inBytes || j.inPlace(rank, element) {
		return nil
	}
	expected := "the same address for both"
	switch j.collective {
	case AllGather:
		expected = fmt.Sprintf("the input in place at %#x, its part of the output", out+inBytes*uint64(rank))
	case ReduceScatter:
		expected = fmt.Sprintf("the output in place at %#x, its part of the input", in+outBytes*uint64(rank))
	}
	return fmt.Errorf("%w: input [%#x, %#x) and output [%#x, %#x) overlap: expected buffers that are apart, or %s",
		framework.ErrInvalid, in, in+inBytes, out, out+outBytes, expected)
}

// extent is the buffer of a message.
type extent struct {
	first, end uint64
	message    int // of the group
}

func (s extent) overlaps(o extent) bool { return s.first < o.end && o.first < s.end }

// apart refuses a group that receives into a buffer which another of its messages uses. It allocates only when a group
// is longer than all before.
func (g *group) apart(self uint32) error {
	if len(g.list) < 2 {
		return nil
	}
	g.extents = g.extents[:0]
	for i := range g.list {
		if x := &g.list[i]; x.Bytes > 0 {
			g.extents = append(g.extents, extent{uint64(x.Buffer), uint64(x.Buffer) + x.Bytes, i})
		}
	}
	slices.SortFunc(g.extents, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	var last, received extent // of those before, the ones that end last
	for _, s := range g.extents {
		x := &g.list[s.message]
		other := received
		if x.Receive != 0 {
			other = last
		}
		if other.overlaps(s) {
			y := &g.list[other.message]
			own := x.Peer == self && y.Peer == self && x.Receive != y.Receive && s.first == other.first && s.end == other.end
			if !own { // to itself, a rank may send in place
				return fmt.Errorf("%w: [%#x, %#x), which is %s, and [%#x, %#x), which is %s, overlap: expected each message of a group to be received into a buffer of its own",
					framework.ErrInvalid, other.first, other.end, with(y), s.first, s.end, with(x))
			}
		}
		if s.end > last.end {
			last = s
		}
		if x.Receive != 0 && s.end > received.end {
			received = s
		}
	}
	return nil
}

func with(x *kernelargs.Transfer) string {
	if x.Receive != 0 {
		return fmt.Sprintf("received from rank %d", x.Peer)
	}
	return fmt.Sprintf("sent to rank %d", x.Peer)
}
