package direct

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/enqueue"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// allToAll collects inside, for each host, what the ranks of this one have for this
// rank's counterpart there, and exchanges that: it arrives where it belongs.
func (t *call) allToAll() {
	h, c := t.Queue, t.Call
	d, in, out := t.d, enqueue.Address(c.Input), enqueue.Address(c.Output)
	part, pieces, of := t.inParts(h.SwapPiece(uint64(c.Type.Size())))
	if h.Most == 1 || part == 0 { // ranks are in the order of the hosts
		for k := range pieces {
			from, bytes := of(k)
			at, own := uintptr(from), uintptr(from+uint64(h.Host)*part)
			t.exchange(t.Stream, traffic{in + at, part, bytes, out + at, part})
			t.Copy(out+own, in+own, bytes)
		}
		return
	}
	room := func(g, k int) uintptr { return d.half(d.mine, k) + uintptr(uint64(g)*d.stride) }
	there := h.InOrder() && pieces == 1 // data from a host belongs in one place
	t.stages(pieces, func(k int) {
		from, bytes := of(k)
		_ = h.OtherHosts(func(g int) error {
			t.SwapBlock(in, part, from, bytes, h.Hosts[g], room(g, k))
			return t.Err
		})
	}, func(s device.Stream, k int) {
		_, bytes := of(k)
		block := uint64(h.Most) * bytes
		to := traffic{room(0, k), d.stride, block, d.half(d.theirs, k), d.stride}
		if there {
			to.out, to.each = out, block
		}
		t.exchange(s, to)
	}, func(k int) {
		from, bytes := of(k)
		t.SwapInside(part, from, bytes) // beside the exchange of the next piece
		if there {
			return
		}
		_ = h.OtherHosts(func(g int) error {
			for i, rank := range h.Hosts[g] {
				theirs := d.half(d.theirs, k) + uintptr(uint64(g)*d.stride+uint64(i)*bytes)
				t.Copy(out+uintptr(uint64(rank)*part+from), theirs, bytes)
			}
			return t.Err
		})
	})
}
