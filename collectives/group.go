package collectives

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// group collects messages between GroupStart and GroupEnd.
type group struct {
	depth     int
	list      []kernelargs.Transfer
	extents   []extent // for apart
	stream    device.Stream
	pinned    []unsafe.Pointer // keeps the callers' buffers in place until the launch
	err       error
	kind      Collective
	performed engine.Group // the group as its engine gets it
	by        *engine.Algorithm
}

// inOrder sorts messages by direction and peer, as engines expect them.
func inOrder(a, b kernelargs.Transfer) int {
	return cmp.Or(cmp.Compare(a.Receive, b.Receive), cmp.Compare(a.Peer, b.Peer))
}

// extent is the buffer of a message.
type extent struct {
	first, end uint64
	message    int // of the group
}

func (s extent) overlaps(o extent) bool { return s.first < o.end && o.first < s.end }

// apart refuses a group that receives into a buffer which another of its messages uses, unless any overlap is allowed.
// It allocates only when a group is longer than all before.
func (g *group) apart(self uint32, any bool) error {
	if any || len(g.list) < 2 {
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
