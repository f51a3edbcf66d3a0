package exec

import (
	"slices"

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
