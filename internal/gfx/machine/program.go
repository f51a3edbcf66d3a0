package machine

import (
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// Load makes a program of a code object.
func Load(file []byte) (*Program, error) {
	o, err := object.Open(file)
	if err != nil {
		return nil, err
	}
	return NewProgram(o), nil
}

// NewProgram makes a program of an object that was read, and that may have been changed.
func NewProgram(o *object.Object) *Program {
	return &Program{Object: o, base: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(o.Image)))), code: make([]*op, (o.Text.End-o.Text.Start+3)/4)}
}

// at returns the instruction at an address.
func (p *Program) at(pc uint64) (*op, error) {
	text := p.Object.Text
	a := pc - p.base
	if a < text.Start || a >= text.End || a%4 != 0 {
		return nil, fmt.Errorf("no code at %#x", a)
	}
	if o := p.code[(a-text.Start)/4]; o != nil {
		return o, nil
	}
	i, err := isa.Decode(p.Object.Arch, p.Object.Image[a:text.End], a)
	if err != nil {
		return nil, err
	}
	o := &op{Inst: i}
	if err := o.bind(); err != nil {
		return nil, err
	}
	p.code[(a-text.Start)/4] = o
	return o, nil
}

// bind finds what executes the instruction, and which registers it uses.
func (o *op) bind() error {
	o.run, o.alu, o.class = nil, nil, classOf(o.Form)
	switch o.Format {
	case isa.SOP1, isa.SOP2, isa.SOPC, isa.SOPK, isa.SOPP:
		o.run = scalars[o.Name]
	case isa.SMEM:
		o.run = scalarMemory
	case isa.DS:
		o.run = group
	case isa.Flat, isa.Global, isa.MUBUF:
		o.run = vectorMemory
	default:
		if o.run = vectors[o.Name]; o.run == nil {
			if a, ok := alus[o.Name]; ok {
				o.alu, o.run = a, (*wave).alu
			}
		}
	}
	if o.run == nil {
		return fmt.Errorf("%s at %#x: nothing executes it", o.Name, o.Addr)
	}
	for _, s := range []isa.Operand{o.Src[0], o.Src[1], o.Src[2], o.Base} {
		if s.Kind == isa.Scalar || s.Kind == isa.Vector {
			o.reads = append(o.reads, s)
		}
	}
	for _, d := range []isa.Operand{o.Dst, o.Mask} {
		if d.Kind != isa.None {
			o.wrote = append(o.wrote, d)
		}
	}
	return nil
}
