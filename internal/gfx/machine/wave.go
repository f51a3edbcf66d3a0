package machine

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
)

func newWave(m *Machine, b *block, first, threads uint32) *wave {
	k := b.grid.kernel
	patience := []int{2, 8, 64, 1 << 20}[m.random.IntN(4)]
	n := int(k.VGPRs) + 8 // the hardware hands out groups of registers
	w := &wave{machine: m, block: b, first: first, v: make([][64]uint32, n), vBusy: make([]uint16, n), pc: b.grid.Program.base + k.Entry, patience: patience}
	for r := range w.v { // nothing may rely on the first content of registers
		for l := range w.v[r] {
			w.v[r][l] = 0xdead0000 | uint32(r)
		}
	}
	for r := range w.s {
		w.s[r] = 0xbad00000 | uint32(r)
	}
	for l := range uint32(64) {
		w.v[0][l] = first + l
	}
	w.setExec(allLanes >> (64 - threads))
	for r := range k.UserSGPRs {
		w.s[r] = 0
	}
	w.setPair(uint16(k.ArgsSGPR), addressOf(b.grid.args))
	r := k.UserSGPRs
	if k.BlockX {
		w.s[r] = b.number
		r++
	}
	w.s[r] = 0 // where its private memory is
	return w
}

// advance executes some instructions, fewer at a barrier or an end.
func (w *wave) advance(quantum int) (int, error) {
	for n := range quantum {
		if w.state != running {
			return n, nil
		}
		o, err := w.block.grid.Program.at(w.pc)
		if err != nil {
			return n, err
		}
		if len(w.pending) > 0 {
			if err := w.ready(o); err != nil {
				return n, err
			}
		}
		w.next = w.pc + uint64(o.Size)
		if err := o.run(w, o); err != nil {
			return n, err
		}
		if o.Format >= isa.VOP1 {
			w.machine.Lanes += 64
		}
		w.pc = w.next
		if w.asleep { // others run before it goes on
			w.asleep = false
			return n + 1, nil
		}
	}
	return quantum, nil
}

// ready checks that the registers of an instruction are not on their way. Loads into the same register come in order.
func (w *wave) ready(o *op) error {
	wrote := o.wrote
	if o.class == load && o.Format != isa.SMEM {
		wrote = nil
	}
	for _, list := range [2][]isa.Operand{o.reads, wrote} {
		for i := range list {
			r := &list[i]
			for n := int(r.N); n < int(r.N)+isa.Width(r.Type); n++ {
				if r.Kind == isa.Vector && w.vBusy[n] != 0 || r.Kind == isa.Scalar && w.sBusy[n] != 0 {
					return fmt.Errorf("%s is used while a load of it is on its way: expected s_waitcnt before", r.String())
				}
			}
		}
	}
	return nil
}

// located adds to an error where it happened.
func (w *wave) located(err error) error {
	return fmt.Errorf("seed %d: %s: %w", w.machine.opts.Seed, w.where(), err)
}

func (w *wave) where() string {
	g := w.block.grid
	p := g.Program
	text := "?"
	if o, err := p.at(w.pc); err == nil {
		text = o.String()
	}
	return fmt.Sprintf("%s on device %d, block %d, threads from %d, %s: %s", g.Kernel, g.Device, w.block.number, w.first, p.Object.Function(w.pc-p.base), text)
}
