package exec

import (
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// copies reports whether an operation copies bytes as they are.
func copies(name schema.OpName) bool {
	switch name {
	case schema.Copy, schema.Put, schema.Pws, schema.Pwsf, schema.Get, schema.GroupStore:
		return true
	}
	return false
}

// move emits a copy. One that reads what the copy before it has read becomes a part of that one: a source is loaded once, and stores to
// several ranks are under way together.
func (d *decoder) move(o *schema.Op, x op, src, dst, through []operand) {
	x.Kind, x.Operands = opMove, uint32(len(d.operands))
	if alike(src) {
		src = src[:1]
	}
	if last := d.sameSource(&x, src, dst); last != nil {
		d.operands = append(d.operands, dst...)
		last.Destinations += uint16(len(dst))
	} else {
		x.Sources, x.Destinations = uint16(len(src)), uint16(len(dst))
		d.operands = append(append(append(d.operands, src...), dst...), through...)
		d.emit(x, nil)
	}
	if o.Name == schema.Pws || o.Name == schema.Pwsf {
		d.emit(op{Number: x.Number}, nil)
		d.emit(op{Kind: opSignal, Number: x.Number}, d.channels(o))
	}
}

// alike reports whether all operands are one.
func alike(list []operand) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(x operand) bool { return x != list[0] })
}

// sameSource returns the operation before a copy, if that is a copy of the same bytes.
func (d *decoder) sameSource(x *op, src, dst []operand) *op {
	if len(d.ops) == d.first || len(src) != 1 || x.Flags&storesWindow != 0 {
		return nil
	}
	last := &d.ops[len(d.ops)-1]
	end := last.Operands + uint32(last.Sources) + uint32(last.Destinations)
	if last.Kind != opMove || last.Flags != x.Flags || last.Slice != x.Slice || last.Slices != x.Slices || last.Sources != 1 || end != x.Operands {
		return nil
	}
	others := slices.Concat(d.operands[last.Operands+1:end], dst)
	if d.operands[last.Operands] != src[0] || slices.ContainsFunc(others, func(y operand) bool { return y.Size != src[0].Size }) {
		return nil
	}
	return last
}

// A port channel of a rank to itself becomes a memory channel of the rank to itself: transports connect ranks to others alone.
// Its transfers become copies by the block, which are complete before the next operation, so that a flush has nothing to wait for.

// link is the memory channel that a port channel of the rank to itself has become; false: the port is to another rank.
func (d *decoder) link(port uint32) (number uint32, ok bool) {
	peers := d.gpu.Peers(schema.Port)
	if peers[port] != d.gpu.ID {
		return 0, false
	}
	return uint32(len(d.gpu.Peers(schema.Memory)) + len(positions(peers[:port], d.gpu.ID))), true
}

// byPort divides the port channels of an operation: those to other ranks, and the memory channels that those to the rank itself have become.
func (d *decoder) byPort(ids []uint32) (others, own []uint32) {
	for _, id := range ids {
		if link, ok := d.link(id); ok {
			own = append(own, link)
		} else {
			others = append(others, id)
		}
	}
	return others, own
}

// toItself reports whether the rank itself is at the other end of one of the ports.
func (d *decoder) toItself(ids []uint32) bool {
	return slices.ContainsFunc(ids, func(id uint32) bool { _, ok := d.link(id); return ok })
}

// oneByOne emits the transfers of an operation by several ports, of which some are to the rank itself.
func (d *decoder) oneByOne(o *schema.Op, x op, src, dst []operand, ids []uint32) error {
	for i, id := range ids {
		y, from := x, src[min(i, len(src)-1)]
		y.Operands, y.Sources, y.Destinations = uint32(len(d.operands)), 1, 1
		d.operands = append(d.operands, from, dst[i])
		var err error
		if link, ok := d.link(id); ok {
			err = d.locally(o, y, from, link)
		} else {
			err = d.transfer(o, y, []operand{from}, []uint32{id})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// locally emits a transfer of a rank to itself. A port carries out one request behind the other: so the block's threads join behind each.
func (d *decoder) locally(o *schema.Op, x op, src operand, link uint32) error {
	x.Flags &^= overPort
	switch o.Name {
	case schema.Put, schema.Pws, schema.Pwsf:
		x.Kind = opMove
	case schema.ReadPutPkt, schema.PutPkt:
		if src.Packet == 0 {
			return errNoPackets
		}
		x.Kind = opForward
	default:
		return errNotOverPort
	}
	d.emit(x, nil)
	d.emit(op{Number: x.Number}, nil)
	if o.Name == schema.Pws || o.Name == schema.Pwsf {
		d.emit(op{Kind: opSignal, Number: x.Number}, []uint32{link})
	}
	return nil
}

var (
	errNoPackets   = fmt.Errorf("%w: a port sends packets from scratch memory alone", framework.ErrUnsupported)
	errNotOverPort = fmt.Errorf("%w: not over a port", framework.ErrUnsupported)
)
