package isa

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// forms finds a form by format, code and processor.
type key struct {
	format Format
	code   uint16
	gfx90a bool
}

var (
	forms = map[key]*Form{}

	// Forms lists all operations; the ID of each is its place.
	Forms []*Form
)

func init() {
	for i := range table {
		f := &table[i]
		f.ID = i
		Forms = append(Forms, f)
		if f.Arch != "gfx942" {
			forms[key{f.Format, f.Code, true}] = f
		}
		if f.Arch != "gfx90a" {
			forms[key{f.Format, f.Code, false}] = f
		}
	}
}

// SharedBase is where flat operations find the memory of a block. Processors choose it; no memory of a process is there.
const SharedBase = 1 << 56

// codes of operands that are none, and of special ones.
const (
	codeShared  = 235 // where the memory of a block begins among the addresses of flat operations
	codeSDWA    = 249
	codeLiteral = 255
	codeOff     = 127 // no scalar base
)

// decoder holds an instruction while it is decoded.
type decoder struct {
	Inst
	w   uint32 // its first word
	x   uint32 // its second one, or 0
	err error
}

// Decode reads the instruction at the start of code, which lies at addr.
func Decode(arch string, code []byte, addr uint64) (Inst, error) {
	d := decoder{}
	d.Addr, d.gfx90a = addr, arch == "gfx90a"
	if !d.gfx90a && arch != "gfx942" {
		return d.Inst, fmt.Errorf("processor %q: expected gfx90a or gfx942", arch)
	}
	if len(code) < 4 {
		return d.Inst, fmt.Errorf("%s code at %#x: % x: expected an instruction of at least 4 bytes", arch, addr, code)
	}
	d.w = binary.LittleEndian.Uint32(code)
	if len(code) >= 8 {
		d.x = binary.LittleEndian.Uint32(code[4:])
	}
	d.Size = 4
	d.decode()
	if d.err == nil && int(d.Size) > len(code) {
		d.fail("cut off")
	}
	if d.err != nil {
		return d.Inst, fmt.Errorf("%s code at %#x: % x: %w", arch, addr, code[:min(len(code), 8)], d.err)
	}
	return d.Inst, nil
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func bits(w uint32, high, low int) uint32 { return w >> low & (1<<(high-low+1) - 1) }

func bit(w uint32, n int) bool { return w>>n&1 != 0 }

func (d *decoder) decode() {
	w := d.w
	switch {
	case w>>31 == 0:
		d.shortVector()
	case w>>23 == 0x17d:
		d.scalar(SOP1, bits(w, 15, 8))
	case w>>23 == 0x17e:
		d.scalar(SOPC, bits(w, 22, 16))
	case w>>23 == 0x17f:
		d.scalar(SOPP, bits(w, 22, 16))
	case w>>28 == 0xb:
		d.scalar(SOPK, bits(w, 27, 23))
	case w>>30 == 2:
		d.scalar(SOP2, bits(w, 29, 23))
	default:
		d.Size = 8
		d.long()
	}
}

// find looks the operation up.
func (d *decoder) find(f Format, code uint32) bool {
	d.Form = forms[key{f, uint16(code), d.gfx90a}]
	if d.Form == nil {
		d.fail("operation %d of format %d: no committed kernel has it", code, f)
	}
	return d.Form != nil
}

func (d *decoder) scalar(f Format, code uint32) {
	if !d.find(f, code) {
		return
	}
	w := d.w
	if d.Results != "" {
		d.Dst = d.register(bits(w, 22, 16), d.Results[0])
	}
	switch f {
	case SOPP:
		d.Imm = int32(int16(w))
	case SOPK:
		d.Imm = int32(int16(w))
		if d.Sources != "" {
			d.Src[0] = d.register(bits(w, 22, 16), d.Sources[0])
		}
	default:
		if f == SOP1 && d.Results == "" && bits(w, 22, 16) != 0 {
			d.fail("a result where none is expected")
		}
		for i, at := range []int{0, 8} {
			if i < len(d.Sources) {
				d.Src[i] = d.source(bits(w, at+7, at), d.Sources[i])
			}
		}
	}
}

// register is an operand that has to be a scalar register.
func (d *decoder) register(code uint32, t byte) Operand {
	o := d.source(code, t)
	if o.Kind != Scalar {
		d.fail("operand %d: expected a scalar register", code)
	}
	return o
}

// source reads an operand of 9 bits.
func (d *decoder) source(code uint32, t byte) Operand {
	o := Operand{N: uint16(code), Type: t, Part: DWord}
	switch {
	case code >= 256:
		o.Kind, o.N = Vector, uint16(code-256)
	case code <= 107 || code == M0 || code == EXEC || code == EXEC+1:
		o.Kind = Scalar
	case code >= 128 && code <= 192:
		o.Kind, o.Value = Constant, integer(int64(code)-128, t)
	case code >= 193 && code <= 208:
		o.Kind, o.Value = Constant, integer(192-int64(code), t)
	case code >= 240 && code <= 247:
		o.Kind, o.Value = Constant, floating(code, t)
	case code == codeShared && t == 'q':
		o.Kind, o.Value = Constant, SharedBase
	case code == codeLiteral:
		o.Kind = Constant
		o.Value = d.literal32(t)
	default:
		d.fail("operand %d: no committed kernel has it", code)
	}
	return o
}

// literal32 takes the constant behind the instruction.
func (d *decoder) literal32(t byte) uint64 {
	if d.Size == 8 && !d.literal {
		d.fail("a constant behind an instruction of 8 bytes")
	}
	d.Size, d.literal = 8, true
	if t == 'd' {
		return uint64(d.x) << 32
	}
	return uint64(d.x)
}

func integer(v int64, t byte) uint64 {
	if Width(t) == 2 {
		return uint64(v)
	}
	return uint64(uint32(v))
}

var floats = []float64{0.5, -0.5, 1, -1, 2, -2, 4, -4}

func floating(code uint32, t byte) uint64 {
	v := floats[code-240]
	switch t {
	case 'h', 'w':
		return uint64(math.Float32bits(float32(v))>>13&0x3ff | math.Float32bits(float32(v))>>16&0x8000 | (math.Float32bits(float32(v))>>23&0xff-112)<<10)
	case 'd', 'q':
		return math.Float64bits(v)
	}
	return uint64(math.Float32bits(float32(v)))
}

// shortVector reads VOP1, VOP2 and VOPC.
func (d *decoder) shortVector() {
	w := d.w
	f, code := VOP2, bits(w, 30, 25)
	switch code {
	case 0x3f:
		f, code = VOP1, bits(w, 16, 9)
	case 0x3e:
		f, code = VOPC, bits(w, 24, 17)
	}
	if !d.find(f, code) {
		return
	}
	d.shortResults(f)
	second := bits(w, 16, 9) + 256
	if bits(w, 8, 0) == codeSDWA {
		d.sdwa(second)
		return
	}
	d.Src[0] = d.source(bits(w, 8, 0), d.Sources[0])
	switch {
	case d.Name == "v_fmamk_f32" || d.Name == "v_madmk_f32":
		d.Src[1] = Operand{Kind: Constant, N: codeLiteral, Type: 'u', Value: d.literal32('u')}
		d.Src[2] = d.source(second, 'f')
	case len(d.Sources) > 1:
		d.Src[1] = d.source(second, d.Sources[1])
	}
}

func (d *decoder) shortResults(f Format) {
	vcc := Operand{Kind: Scalar, N: VCC, Type: 'm', Part: DWord}
	switch {
	case f == VOPC:
		d.Dst = vcc
		return
	case d.Name == "v_readfirstlane_b32":
		d.Dst = d.register(bits(d.w, 24, 17), 'u')
	default:
		d.Dst = Operand{Kind: Vector, N: uint16(bits(d.w, 24, 17)), Type: d.Results[0], Part: DWord}
	}
	if len(d.Results) > 1 {
		d.Mask = vcc
	}
	if len(d.Sources) == 3 && d.Sources[2] == 'm' {
		d.Src[2] = vcc
	}
}

func (d *decoder) sdwa(second uint32) {
	x := d.x
	d.Size, d.SDWA = 8, true
	if d.Form.Format == VOPC {
		if d.Part = DWord; bit(x, 15) {
			d.Dst = d.register(bits(x, 14, 8), 'm')
		} else if bits(x, 14, 8) != 0 {
			d.fail("a result of SDWA beside the usual one")
		}
	} else {
		d.Part, d.Unused = uint8(bits(x, 10, 8)), uint8(bits(x, 12, 11))
		if bits(x, 15, 13) != 0 || strings.Contains(d.Sources, "m") || Width(d.Results[0]) != 1 || d.Unused > 2 || d.Part > DWord {
			d.fail("modifiers of SDWA: no committed kernel has them")
			return
		}
	}
	operand := func(code uint32, m uint32, t byte) Operand {
		if bit(m, 7) {
			code &= 0xff
		} else {
			code = code&0xff | 256
		}
		o := d.source(code, t)
		o.Part, o.Sext, o.Neg, o.Abs = uint8(bits(m, 2, 0)), bit(m, 3), bit(m, 4), bit(m, 5)
		if o.Neg || o.Abs || o.Kind == Constant || o.Part > DWord {
			d.fail("operand of SDWA: no committed kernel has it")
		}
		return o
	}
	d.Src[0] = operand(bits(x, 7, 0), bits(x, 23, 16), d.Sources[0])
	if len(d.Sources) > 1 {
		d.Src[1] = operand(second, bits(x, 31, 24), d.Sources[1])
	} else if bits(x, 31, 24) != 0 && bits(x, 31, 24) != DWord {
		d.fail("a second operand of SDWA where none is expected")
	}
}
