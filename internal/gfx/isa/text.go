package isa

import (
	"fmt"
	"strconv"
	"strings"
)

// String writes an instruction as LLVM's disassembler does.
func (i *Inst) String() string {
	name := i.Name
	switch {
	case i.SDWA:
		name += "_sdwa"
	case i.Name == "v_fmamk_f32" || i.Name == "v_madmk_f32":
	case i.Format == VOP1 && i.Name == "v_readfirstlane_b32":
	case i.Format == VOP1 || i.Format == VOP2 || i.Format == VOPC:
		name += "_e32"
	case i.Format == VOP3 && hasShort[i.Name]:
		name += "_e64"
	}
	text := name
	if ops := i.operands(); len(ops) > 0 {
		text += " " + strings.Join(ops, ", ")
	}
	return text + i.modifiers()
}

// hasShort are the names of operations that have a short format too, and so a suffix in the long one.
var hasShort = func() map[string]bool {
	short := map[string]bool{}
	for _, f := range table {
		if f.Format == VOP1 || f.Format == VOP2 || f.Format == VOPC {
			short[f.Name] = true
		}
		if f.Format == VOP3 && strings.HasPrefix(f.Name, "v_cmp_") {
			short[f.Name] = true
		}
	}
	return short
}()

func (i *Inst) operands() []string {
	switch i.Format {
	case SOPP:
		return i.sopp()
	case SOPK:
		o := i.Dst
		if i.Sources != "" {
			o = i.Src[0]
		}
		return []string{o.String(), fmt.Sprintf("%#x", uint16(i.Imm))}
	case SMEM:
		if i.Sources == "" {
			return []string{i.Dst.String()}
		}
		return []string{i.Dst.String(), i.Base.String(), fmt.Sprintf("%#x", i.Offset)}
	case Flat, Global:
		return i.memory()
	case MUBUF:
		return nil
	}
	var out []string
	for _, o := range []*Operand{&i.Dst, &i.Mask, &i.Src[0], &i.Src[1], &i.Src[2]} {
		if o.Kind != None {
			out = append(out, o.String())
		}
	}
	return out
}

func (i *Inst) sopp() []string {
	switch {
	case i.Name == "s_waitcnt":
		return []string{i.counts()}
	case i.Name == "s_nop", i.Name == "s_sleep", strings.HasPrefix(i.Name, "s_branch"), strings.HasPrefix(i.Name, "s_cbranch"):
		return []string{strconv.Itoa(int(uint16(i.Imm)))}
	}
	return nil
}

// Counts are what s_waitcnt waits for: how many operations may still be on their way.
func (i *Inst) Counts() (vector, export, other int) {
	n := int(uint16(i.Imm))
	return n&0xf | n>>10&0x30, n >> 4 & 7, n >> 8 & 0xf
}

func (i *Inst) counts() string {
	v, e, l := i.Counts()
	var out []string
	all := v == 63 && e == 7 && l == 15
	for _, c := range []struct {
		name    string
		n, most int
	}{{"vmcnt", v, 63}, {"expcnt", e, 7}, {"lgkmcnt", l, 15}} {
		if c.n != c.most || all {
			out = append(out, fmt.Sprintf("%s(%d)", c.name, c.n))
		}
	}
	return strings.Join(out, " ")
}

func (i *Inst) memory() []string {
	var out []string
	if i.Dst.Kind != None {
		out = append(out, i.Dst.String())
	}
	out = append(out, i.Src[0].String())
	if i.Src[1].Kind != None {
		out = append(out, i.Src[1].String())
	}
	if i.Format == Global {
		if i.Base.Kind == None {
			out = append(out, "off")
		} else {
			out = append(out, i.Base.String())
		}
	}
	return out
}

func (i *Inst) modifiers() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	switch i.Format {
	case DS, Flat, Global:
		if i.twoOffsets() {
			if i.Offset != 0 {
				add("offset0:%d", i.Offset)
			}
			if i.Offset2 != 0 {
				add("offset1:%d", i.Offset2)
			}
		} else if i.Offset != 0 {
			add("offset:%d", i.Offset)
		}
	case VOP3P:
		i.halves(add)
	}
	if i.SDWA {
		if i.Format != VOPC {
			add("dst_sel:%s dst_unused:%s", parts[i.Part], unused[i.Unused])
		}
		add("src0_sel:%s", parts[i.Src[0].Part])
		if len(i.Sources) > 1 {
			add("src1_sel:%s", parts[i.Src[1].Part])
		}
	}
	for _, m := range []struct {
		on         bool
		old, newer string
	}{{i.SC0, "glc", "sc0"}, {i.NT, "slc", "nt"}, {i.SC1, "", "sc1"}, {i.Clamp, "clamp", "clamp"}} {
		if m.on && i.gfx90a {
			add("%s", m.old)
		} else if m.on {
			add("%s", m.newer)
		}
	}
	return b.String()
}

var (
	parts  = [...]string{"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "?"}
	unused = [...]string{"UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"}
)

// halves writes which halves of its sources a packed operation takes, if not the usual ones.
func (i *Inst) halves(add func(string, ...any)) {
	n := len(i.Sources)
	list := func(of uint8) string {
		var out []string
		for j := range n {
			out = append(out, strconv.Itoa(int(of>>j&1)))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	usual := uint8(1<<n - 1)
	if i.Name == "v_fma_mixlo_f16" {
		usual = 0
	}
	if i.OpSel&(1<<n-1) != 0 {
		add("op_sel:%s", list(i.OpSel))
	}
	if i.OpSelHi&(1<<n-1) != usual {
		add("op_sel_hi:%s", list(i.OpSelHi))
	}
	if i.NegLo != 0 {
		add("neg_lo:%s", list(i.NegLo))
	}
	if i.NegHi != 0 {
		add("neg_hi:%s", list(i.NegHi))
	}
}

// String writes an operand.
func (o *Operand) String() string {
	text := o.plain()
	if o.Abs {
		text = "|" + text + "|"
	}
	if o.Neg {
		text = "-" + text
	}
	if o.Sext {
		text = "sext(" + text + ")"
	}
	return text
}

func (o *Operand) plain() string {
	n, width := int(o.N), Width(o.Type)
	if o.Kind == Constant {
		switch {
		case n == codeShared:
			return "src_shared_base"
		case n == codeLiteral && o.Type == 'd':
			return fmt.Sprintf("%#x", o.Value>>32)
		case n == codeLiteral && int32(o.Value) >= -16 && int32(o.Value) <= 64:
			return strconv.Itoa(int(int32(o.Value)))
		case n == codeLiteral:
			return fmt.Sprintf("%#x", o.Value)
		case n >= 240:
			return fmt.Sprintf("%.1f", floats[n-240])
		case n > 192:
			return strconv.Itoa(192 - n)
		}
		return strconv.Itoa(n - 128)
	}
	letter := "s"
	if o.Kind == Vector {
		letter = "v"
	} else if name := special(n, width); name != "" {
		return name
	}
	if width == 1 {
		return letter + strconv.Itoa(n)
	}
	return fmt.Sprintf("%s[%d:%d]", letter, n, n+width-1)
}

func special(n, width int) string {
	names := map[int]string{FlatScratch: "flat_scratch", VCC: "vcc", EXEC: "exec"}
	if n == M0 {
		return "m0"
	}
	if name, ok := names[n]; ok && width == 2 {
		return name
	} else if ok {
		return name + "_lo"
	}
	if name, ok := names[n-1]; ok && width == 1 {
		return name + "_hi"
	}
	return ""
}
