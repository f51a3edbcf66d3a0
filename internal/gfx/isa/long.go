package isa

// long reads the formats of 8 bytes.
func (d *decoder) long() {
	w := d.w
	switch w >> 26 {
	case 0x30:
		d.smem()
	case 0x34:
		if w>>23 == 0x1a7 {
			d.packed()
		} else {
			d.vop3()
		}
	case 0x36:
		d.ds()
	case 0x37:
		d.flat()
	case 0x38:
		d.cache()
	default:
		d.fail("format %#x: no committed kernel has it", w>>26)
	}
}

func (d *decoder) smem() {
	w := d.w
	if !d.find(SMEM, bits(w, 25, 18)) {
		return
	}
	d.Dst = d.register(bits(w, 12, 6), d.Results[0])
	if bits(w, 16, 14) != 0 {
		d.fail("modifiers of a scalar load: no committed kernel has them")
	}
	if d.Sources == "" {
		return
	}
	if !bit(w, 17) {
		d.fail("a scalar load without a constant offset: no committed kernel has one")
	}
	d.Base = d.register(bits(w, 5, 0)<<1, 'q')
	d.Offset = int32(d.x<<11) >> 11
}

func (d *decoder) vop3() {
	w, x := d.w, d.x
	if !d.find(VOP3, bits(w, 25, 16)) {
		return
	}
	d.Inst.vop3 = true
	modified := len(d.Results) < 2 // else its bits are the second result
	switch {
	case d.Results[0] == 'm' || d.Name == "v_readlane_b32":
		d.Dst = d.register(bits(w, 7, 0), d.Results[0])
	default:
		d.Dst = Operand{Kind: Vector, N: uint16(bits(w, 7, 0)), Type: d.Results[0], Part: DWord}
	}
	if !modified {
		d.Mask = d.register(bits(w, 14, 8), 'm')
	} else if bits(w, 14, 11) != 0 {
		d.fail("halves of registers: no committed kernel has them here")
	}
	d.Clamp = bit(w, 15)
	if d.Clamp && d.Name != "v_sub_u32" || bits(x, 28, 27) != 0 {
		d.fail("modifiers of the result: no committed kernel has them")
	}
	for i := range 3 {
		code := bits(x, 9*i+8, 9*i)
		if i >= len(d.Sources) {
			if code != 0 {
				d.fail("source %d: expected none", i)
			}
			continue
		}
		d.Src[i] = d.source(code, d.Sources[i])
		d.Src[i].Neg = bit(x, 29+i)
		d.Src[i].Abs = modified && bit(w, 8+i)
		if t := d.Sources[i]; (d.Src[i].Neg || d.Src[i].Abs) && t != 'f' && t != 'd' && (d.Name != "v_cndmask_b32" || t != 'u') {
			d.fail("a sign of source %d, which is no floating-point number", i)
		}
	}
}

func (d *decoder) packed() {
	w, x := d.w, d.x
	if !d.find(VOP3P, bits(w, 22, 16)) {
		return
	}
	d.Dst = Operand{Kind: Vector, N: uint16(bits(w, 7, 0)), Type: d.Results[0], Part: DWord}
	d.OpSel = uint8(bits(w, 13, 11))
	d.OpSelHi = uint8(bits(x, 28, 27) | bits(w, 14, 14)<<2)
	d.NegLo, d.NegHi = uint8(bits(x, 31, 29)), uint8(bits(w, 10, 8))
	if bit(w, 15) || (d.NegLo != 0 || d.NegHi != 0) && d.Name != "v_pk_add_f32" {
		d.fail("modifiers of a packed operation: no committed kernel has them")
	}
	for i := range d.Sources {
		d.Src[i] = d.source(bits(x, 9*i+8, 9*i), d.Sources[i])
	}
	if n := len(d.Sources); n < 3 && bits(x, 26, 18) != 0 {
		d.fail("source 2: expected none")
	}
}

func (d *decoder) ds() {
	w, x := d.w, d.x
	if !d.find(DS, bits(w, 24, 17)) {
		return
	}
	if bit(w, 16) || bit(w, 25) {
		d.fail("global data share, or accumulation registers: no committed kernel has them")
	}
	d.Offset = int32(bits(w, 15, 0))
	if d.twoOffsets() {
		d.Offset, d.Offset2 = int32(bits(w, 7, 0)), int32(bits(w, 15, 8))
	}
	d.Src[0] = d.vector(bits(x, 7, 0), 'u')
	for i := range d.Sources {
		d.Src[1+i] = d.vector(bits(x, 15+8*i, 8+8*i), d.Sources[i])
	}
	if d.Results != "" {
		d.Dst = d.vector(bits(x, 31, 24), d.Results[0])
	}
}

// twoOffsets tells the operations that access two places.
func (i *Inst) twoOffsets() bool {
	switch i.Name {
	case "ds_read2_b32", "ds_read2_b64", "ds_write2_b32", "ds_write2_b64":
		return true
	}
	return false
}

func (d *decoder) vector(n uint32, t byte) Operand {
	return Operand{Kind: Vector, N: uint16(n), Type: t, Part: DWord}
}

func (d *decoder) flat() {
	w, x := d.w, d.x
	f := Flat
	switch bits(w, 15, 14) {
	case 0:
	case 2:
		f = Global
	default:
		d.fail("segment %d of memory: no committed kernel accesses private memory", bits(w, 15, 14))
		return
	}
	if !d.find(f, bits(w, 24, 18)) {
		return
	}
	d.SC0, d.NT = bit(w, 16), bit(w, 17)
	d.SC1 = bit(w, 25)
	if bit(w, 13) || d.gfx90a && d.SC1 || bit(x, 23) {
		d.fail("modifiers of memory: no committed kernel has them")
	}
	d.Offset = int32(bits(w, 12, 0)<<19) >> 19
	d.Src[0] = d.vector(bits(x, 7, 0), 'q')
	switch base := bits(x, 22, 16); {
	case f == Flat:
		if d.Offset < 0 || base != 0 {
			d.fail("offset %d, base %d: expected no base, and no negative offset", d.Offset, base)
		}
	case base != codeOff:
		d.Base = d.register(base, 'q')
		d.Src[0].Type = 'u'
	}
	if d.Sources != "" {
		d.Src[1] = d.vector(bits(x, 15, 8), d.Sources[0])
	}
	if d.Results != "" && (d.Sources == "" || d.SC0) {
		d.Dst = d.vector(bits(x, 31, 24), d.Results[0])
	}
}

// cache reads the operations on caches, which are in the format of buffers.
func (d *decoder) cache() {
	w := d.w
	if !d.find(MUBUF, bits(w, 24, 18)) {
		return
	}
	d.SC0, d.SC1, d.NT = bit(w, 14), bit(w, 15), bit(w, 17)
	if bits(w, 13, 0) != 0 || bit(w, 16) || d.x != 0 {
		d.fail("modifiers of a cache operation: no committed kernel has them")
	}
	if d.gfx90a { // the assembler sets both, and they mean nothing
		d.SC0, d.SC1 = false, false
	}
}
