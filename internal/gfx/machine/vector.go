package machine

import (
	"fmt"
	"math/bits"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
)

// alu is what a vector instruction computes in each lane.
type alu struct {
	value   func(a, b, c uint64) uint64
	compare func(a, b uint64) bool
	// carry also gives a bit of a mask; its third number is a bit of one.
	carry func(a, b, c uint64) (uint64, bool)

	accumulates bool // the third number is the result's old value
}

// alu executes an instruction lane by lane.
func (w *wave) alu(o *op) error {
	w.fetch(&o.Src[0], &w.a)
	if o.Src[1].Kind != isa.None {
		w.fetch(&o.Src[1], &w.b)
	}
	switch {
	case o.alu.accumulates:
		w.fetch(&o.Dst, &w.c)
	case o.Src[2].Kind != isa.None:
		w.fetch(&o.Src[2], &w.c)
	}
	exec := w.exec()
	switch {
	case o.alu.compare != nil:
		w.setPair(o.Dst.N, w.eachCompare(o.alu.compare, exec))
		return nil
	case o.alu.carry != nil:
		w.setPair(o.Mask.N, w.eachCarry(o.alu.carry, exec))
	default:
		f := o.alu.value
		for m := exec; m != 0; m &= m - 1 {
			l := bits.TrailingZeros64(m) & 63
			w.a[l] = f(w.a[l], w.b[l], w.c[l])
		}
	}
	if o.Clamp { // of v_sub_u32 alone, which the decoder sees to
		return fmt.Errorf("clamp of %s", o.Name)
	}
	w.store(o, exec)
	return nil
}

func (w *wave) eachCompare(f func(a, b uint64) bool, exec uint64) (mask uint64) {
	for m := exec; m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		if f(w.a[l], w.b[l]) {
			mask |= 1 << l
		}
	}
	return mask
}

func (w *wave) eachCarry(f func(a, b, c uint64) (uint64, bool), exec uint64) (mask uint64) {
	for m := exec; m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		r, out := f(w.a[l], w.b[l], w.c[l])
		w.a[l] = r
		if out {
			mask |= 1 << l
		}
	}
	return mask
}

// fetch reads a source for all lanes.
func (w *wave) fetch(o *isa.Operand, to *lanes) {
	switch {
	case o.Kind == isa.Constant:
		for l := range to {
			to[l] = o.Value
		}
	case o.Type == 'm':
		mask := w.pair(o.N)
		for l := range to {
			to[l] = mask >> l & 1
		}
	case o.Kind == isa.Scalar:
		v := w.scalarOperand(o)
		for l := range to {
			to[l] = v
		}
	case isa.Width(o.Type) == 2:
		low, high := &w.v[o.N], &w.v[o.N+1]
		for l := range to {
			to[l] = uint64(low[l]) | uint64(high[l])<<32
		}
	default:
		from := &w.v[o.N]
		for l := range to {
			to[l] = uint64(from[l])
		}
	}
	if o.Part != isa.DWord && o.Kind != isa.Constant && o.Type != 'm' || o.Sext {
		for l := range to {
			to[l] = part(to[l], o.Part, o.Sext)
		}
	}
	if o.Neg || o.Abs {
		sign(o, to)
	}
	if o.Type == 'w' || o.Type == 'h' {
		for l := range to {
			to[l] &= 0xffff
		}
	}
}

// part is the part of a register that SDWA names.
func part(v uint64, which uint8, sext bool) uint64 {
	shift, width := 0, 32
	switch {
	case which < isa.Word0:
		shift, width = int(which)*8, 8
	case which < isa.DWord:
		shift, width = int(which-isa.Word0)*16, 16
	}
	if sext {
		return uint64(uint32(int64(v>>shift<<(64-width)) >> (64 - width)))
	}
	return v >> shift & (1<<width - 1)
}

func sign(o *isa.Operand, to *lanes) {
	bit := uint64(1) << 31
	if o.Type == 'd' {
		bit = 1 << 63
	}
	for l := range to {
		if o.Abs {
			to[l] &^= bit
		}
		if o.Neg {
			to[l] ^= bit
		}
	}
}

// store writes w.a as the result of the lanes in exec.
func (w *wave) store(o *op, exec uint64) {
	d := &o.Dst
	if o.SDWA && o.Part != isa.DWord {
		w.storePart(o, exec)
		return
	}
	to := &w.v[d.N]
	if isa.Width(d.Type) == 2 {
		high := &w.v[d.N+1]
		for m := exec; m != 0; m &= m - 1 {
			l := bits.TrailingZeros64(m) & 63
			to[l], high[l] = uint32(w.a[l]), uint32(w.a[l]>>32)
		}
		return
	}
	for m := exec; m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		to[l] = uint32(w.a[l])
	}
}

// storePart writes a part of the result's register; the rest becomes 0, a sign, or is kept.
func (w *wave) storePart(o *op, exec uint64) {
	to := &w.v[o.Dst.N]
	shift, width := int(o.Part)*8, 8
	if o.Part >= isa.Word0 {
		shift, width = int(o.Part-isa.Word0)*16, 16
	}
	mask := uint32(1<<width-1) << shift
	for m := exec; m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		v := uint32(w.a[l]) << shift & mask
		switch o.Unused {
		case 1:
			v = uint32(int32(uint32(w.a[l])<<(32-width))>>(32-width)) << shift
		case 2:
			v |= to[l] &^ mask
		}
		to[l] = v
	}
}

// vectors executes vector instructions that are more than a function of each lane.
var vectors = map[string]func(*wave, *op) error{
	"v_readfirstlane_b32": func(w *wave, o *op) error {
		w.fetch(&o.Src[0], &w.a)
		w.s[o.Dst.N] = uint32(w.a[bits.TrailingZeros64(w.exec()|1<<63)&63])
		return nil
	},
	"v_readlane_b32": func(w *wave, o *op) error {
		w.s[o.Dst.N] = w.v[o.Src[0].N][w.scalarOperand(&o.Src[1])&63]
		return nil
	},
	"v_writelane_b32": func(w *wave, o *op) error {
		w.v[o.Dst.N][w.scalarOperand(&o.Src[1])&63] = uint32(w.scalarOperand(&o.Src[0]))
		return nil
	},
	"v_mbcnt_lo_u32_b32": func(w *wave, o *op) error { return w.mbcnt(o, 0) },
	"v_mbcnt_hi_u32_b32": func(w *wave, o *op) error { return w.mbcnt(o, 32) },
	"v_div_fmas_f32":     func(w *wave, o *op) error { return w.divFmas(o, fmas32) },
	"v_div_fmas_f64":     func(w *wave, o *op) error { return w.divFmas(o, fmas64) },
	"v_fma_mixlo_f16":    func(w *wave, o *op) error { return w.mixLow(o) },
	"v_pk_mov_b32": func(w *wave, o *op) error {
		return w.packed(o, func(_, a, b uint32) uint32 { return a }, true)
	},
	"v_pk_add_f16": func(w *wave, o *op) error { return w.halves(o, addF16) },
	"v_pk_add_f32": func(w *wave, o *op) error {
		return w.packed(o, func(_, a, b uint32) uint32 { return uint32(addF32(uint64(a), uint64(b), 0)) }, false)
	},
	"v_pk_mul_f32": func(w *wave, o *op) error {
		return w.packed(o, func(_, a, b uint32) uint32 { return uint32(mulF32(uint64(a), uint64(b), 0)) }, false)
	},
	"v_sub_u32": func(w *wave, o *op) error {
		f := func(a, b, _ uint64) uint64 { return a - b }
		if o.Clamp {
			f = func(a, b, _ uint64) uint64 { return a - min(a, b) }
		}
		w.fetch(&o.Src[0], &w.a)
		w.fetch(&o.Src[1], &w.b)
		exec := w.exec()
		for l := range w.a {
			w.a[l] = f(w.a[l], w.b[l], 0)
		}
		w.store(o, exec)
		return nil
	},
}

// mbcnt counts the bits of a mask that belong to lanes below each.
func (w *wave) mbcnt(o *op, first int) error {
	w.fetch(&o.Src[0], &w.a)
	w.fetch(&o.Src[1], &w.b)
	for l := range w.a {
		below := uint64(1)<<l - 1
		w.a[l] = w.b[l] + uint64(bits.OnesCount32(uint32(w.a[l])&uint32(below>>first)))
	}
	w.store(o, w.exec())
	return nil
}

// halves computes the low and the high half of a register, of the halves of two others that the instruction names.
func (w *wave) halves(o *op, f func(a, b uint64) uint64) error {
	w.fetch(&o.Src[0], &w.a)
	w.fetch(&o.Src[1], &w.b)
	half := func(v uint64, high uint8) uint64 { return v >> (16 * (high & 1)) & 0xffff }
	for l := range w.a {
		a, b := w.a[l], w.b[l]
		w.a[l] = f(half(a, o.OpSel), half(b, o.OpSel>>1)) | f(half(a, o.OpSelHi), half(b, o.OpSelHi>>1))<<16
	}
	w.store(o, w.exec())
	return nil
}

// packed executes an operation on both halves of pairs of registers. Moves take the low half from the first source, the
// high one from the second.
func (w *wave) packed(o *op, f func(half, a, b uint32) uint32, moves bool) error {
	w.fetch(&o.Src[0], &w.a)
	w.fetch(&o.Src[1], &w.b)
	half := func(v uint64, high uint8) uint32 { return uint32(v >> (32 * (high & 1))) }
	for l := range w.a {
		a, b := w.a[l], w.b[l]
		low := f(0, half(a, o.OpSel)^turned(o.NegLo), half(b, o.OpSel>>1)^turned(o.NegLo>>1))
		high := f(1, half(a, o.OpSelHi)^turned(o.NegHi), half(b, o.OpSelHi>>1)^turned(o.NegHi>>1))
		if moves {
			high = half(b, o.OpSel>>1)
		}
		w.a[l] = uint64(low) | uint64(high)<<32
	}
	w.store(o, w.exec())
	return nil
}

// divFmas multiplies and adds, and scales back in the lanes of VCC.
func (w *wave) divFmas(o *op, f func(a, b, c uint64, scaled bool) uint64) error {
	const vcc = 106
	mask := w.pair(vcc)
	w.fetch(&o.Src[0], &w.a)
	w.fetch(&o.Src[1], &w.b)
	w.fetch(&o.Src[2], &w.c)
	for m := w.exec(); m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		w.a[l] = f(w.a[l], w.b[l], w.c[l], mask>>l&1 != 0)
	}
	w.store(o, w.exec())
	return nil
}

// turned is the sign bit if the lowest bit says that the sign is turned.
func turned(by uint8) uint32 { return uint32(by&1) << 31 }

// mixLow multiplies and adds numbers of 16 or 32 bits, and writes the low half of a register.
func (w *wave) mixLow(o *op) error {
	for i, to := range []*lanes{&w.a, &w.b, &w.c} {
		s := o.Src[i]
		w.fetch(&s, to)
		if o.OpSelHi>>i&1 == 0 {
			continue
		}
		if s.Kind == isa.Constant {
			return fmt.Errorf("v_fma_mixlo_f16 of a constant of 16 bits: no committed kernel has one")
		}
		for l := range to {
			to[l] = f16ToF32(to[l] >> (16 * (o.OpSel >> i & 1)) & 0xffff)
		}
	}
	d := &w.v[o.Dst.N]
	for m := w.exec(); m != 0; m &= m - 1 {
		l := bits.TrailingZeros64(m) & 63
		d[l] = d[l]&0xffff0000 | uint32(f32ToF16(fmaF32(w.a[l], w.b[l], w.c[l])))
	}
	return nil
}
