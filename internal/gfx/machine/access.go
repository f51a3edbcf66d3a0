package machine

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
)

// classOf returns the kind of memory operation that a form is.
func classOf(f *isa.Form) class {
	switch {
	case f.Format != isa.SMEM && f.Format != isa.Flat && f.Format != isa.Global && f.Format != isa.MUBUF:
		return noMemory
	case strings.Contains(f.Name, "_load_") || f.Format == isa.SMEM:
		return load
	case strings.Contains(f.Name, "_store_"):
		return store
	case strings.Contains(f.Name, "_atomic_"):
		return atomic
	case f.Name == "buffer_wbl2":
		return writeBack
	}
	return invalidate
}

// newAccess takes an access that was used before, or makes one.
func (w *wave) newAccess(o *op) *access {
	var a *access
	if n := len(w.spare); n > 0 {
		a, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		a = &access{}
	}
	a.op, a.class, a.exec, a.size = o, o.class, 1, 0
	a.scalar, a.vector, a.other, a.performed = false, false, false, false
	a.scope = w.scope(o)
	w.machine.issued++
	a.number = w.machine.issued
	return a
}

// scope is that of a memory operation. On gfx90a stores have none, and loads only say whether they pass the first cache.
func (w *wave) scope(o *op) Scope {
	if w.block.grid.Program.Object.Arch != "gfx90a" {
		return Scope(one(o.SC0) | one(o.SC1)<<1)
	}
	switch {
	case o.class == load && !o.SC0, o.class == store:
		return Wave
	case o.Name == "buffer_wbinvl1_vol":
		return Agent
	}
	return System
}

// enqueue sends an access on its way. Where nothing is late, it is performed at once.
func (w *wave) enqueue(a *access) error {
	a.low, a.high = ^uint64(0), 0
	if a.size > 0 {
		for m := a.exec; m != 0; m &= m - 1 {
			l := bits.TrailingZeros64(m)
			a.low, a.high = min(a.low, a.addr[l]), max(a.high, a.addr[l]+uint64(a.size))
		}
	}
	w.pending = append(w.pending, a)
	w.busy(a, 1)
	if !w.machine.opts.Weak {
		return w.perform(a)
	}
	const most = 48 // operations of a wave on their way
	if late := slices.IndexFunc(w.pending, func(b *access) bool { return !b.performed }); len(w.pending)-late > most {
		return w.perform(w.pending[late])
	}
	return nil
}

// busy marks registers that an access will write.
func (w *wave) busy(a *access, by int) {
	d := &a.op.Dst
	if d.Kind == isa.None {
		return
	}
	for n := int(d.N); n < int(d.N)+isa.Width(d.Type); n++ {
		if a.scalar {
			w.sBusy[n] += uint16(by)
		} else {
			w.vBusy[n] += uint16(by)
		}
	}
}

// vectorMemory sends the access of a vector instruction on its way.
func vectorMemory(w *wave, o *op) error {
	a := w.newAccess(o)
	a.vector, a.exec = true, w.exec()
	if o.Format == isa.MUBUF {
		a.exec = 0
		return w.enqueue(a)
	}
	a.size = accessBytes(o)
	offset := uint64(int64(o.Offset))
	if o.Base.Kind != isa.None {
		offset += w.pair(o.Base.N)
	}
	low := &w.v[o.Src[0].N]
	for l := range a.addr {
		a.addr[l] = uint64(low[l]) + offset
		if o.Base.Kind == isa.None {
			a.addr[l] += uint64(w.v[o.Src[0].N+1][l]) << 32
		}
	}
	if o.Src[1].Kind != isa.None {
		high := strings.HasSuffix(o.Name, "_d16_hi")
		for r := range isa.Width(o.Src[1].Type) {
			from := &w.v[int(o.Src[1].N)+r]
			for l := range a.data {
				a.data[l][r] = from[l]
				if high {
					a.data[l][r] >>= 16
				}
			}
		}
	}
	err := w.enqueue(a)
	if err == nil && o.Format == isa.Flat && !a.performed && a.ofGroup() { // as other operations on it, it takes effect at once
		err = w.performBehind(len(w.pending) - 1)
	}
	return err
}

// accessBytes is how many bytes each lane accesses.
func accessBytes(o *op) int {
	switch {
	case strings.Contains(o.Name, "_ubyte"), strings.Contains(o.Name, "_byte"):
		return 1
	case strings.Contains(o.Name, "_ushort"), strings.Contains(o.Name, "_short"):
		return 2
	case o.Name == "flat_atomic_cmpswap", o.Name == "global_atomic_cmpswap":
		return 4
	case o.Results != "":
		return 4 * isa.Width(o.Results[0])
	}
	return 4 * isa.Width(o.Sources[0])
}

// perform lets an access take effect.
func (w *wave) perform(a *access) error {
	if a.performed {
		return nil
	}
	a.performed = true
	if w.machine.opts.Weak && a.class != invalidate {
		if err := w.others(a); err != nil {
			return err
		}
	}
	m, core := w.machine.memory, w.block.core
	switch a.class {
	case invalidate:
		m.Invalidate(core, a.scope, a.op.Name != "buffer_invl2", a.op.Name != "buffer_wbinvl1_vol" && a.scope == System)
		return nil
	case writeBack:
		return m.WriteBack(core)
	}
	if a.scalar {
		return w.performScalar(a)
	}
	for x := a.exec; x != 0; x &= x - 1 {
		l := bits.TrailingZeros64(x)
		var err error
		switch {
		case a.op.Format == isa.Flat && a.addr[l]>>32 == isa.SharedBase>>32:
			err = w.flatGroup(a, l)
		case a.class == load:
			err = m.Load(core, a.scope, a.addr[l], a.size, &a.data[l])
		case a.class == store:
			err = m.Store(core, a.scope, a.addr[l], a.size, &a.data[l])
		case a.class == atomic:
			err = m.Atomic(core, a.scope, atomicOf(a.op.Name), a.addr[l], a.size, &a.data[l])
		}
		if err != nil {
			return fmt.Errorf("lane %d of %q: %w", l, a.op.String(), err)
		}
	}
	w.results(a)
	return nil
}

// others performs accesses of the other waves of the block to the same places that came before one of this wave: their
// compute unit keeps these in order. It keeps no others: a write-back says nothing about the stores of other waves.
func (w *wave) others(second *access) error {
	for _, o := range w.block.waves {
		if o == w {
			continue
		}
		for at, first := range o.pending {
			meet := first.low < second.high && second.low < first.high && (first.class != load || second.class != load)
			if first.performed || first.number > second.number || !meet {
				continue
			}
			if err := o.performBehind(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// performBehind performs an access, and first those of its wave that hold it.
func (w *wave) performBehind(at int) error {
	a := w.pending[at]
	for i, b := range w.pending[:at] {
		if !b.performed && holds(b, a) {
			if err := w.performBehind(i); err != nil {
				return err
			}
		}
	}
	return w.perform(a)
}

func atomicOf(name string) Operation {
	if strings.HasSuffix(name, "_cmpswap") {
		return CompareSwap
	}
	return Add
}

// results writes what was loaded into registers.
func (w *wave) results(a *access) {
	d := &a.op.Dst
	if d.Kind != isa.Vector {
		return
	}
	for r := range isa.Width(d.Type) {
		to := &w.v[int(d.N)+r]
		for x := a.exec; x != 0; x &= x - 1 {
			l := bits.TrailingZeros64(x)
			to[l] = a.data[l][r]
		}
	}
}

func (w *wave) performScalar(a *access) error {
	for at := 0; at < a.size; at += 16 {
		n := min(16, a.size-at)
		if err := w.machine.memory.Load(w.block.core, Agent, a.addr[0]+uint64(at), n, &a.data[at/16]); err != nil {
			return fmt.Errorf("%q: %w", a.op.String(), err)
		}
	}
	w.scalarResults(a)
	return nil
}

func (w *wave) scalarResults(a *access) {
	d := &a.op.Dst
	for r := range isa.Width(d.Type) {
		w.s[int(d.N)+r] = a.data[r/4][r%4]
	}
}

// waitCounts is s_waitcnt: it returns when so few operations are on their way.
func waitCounts(w *wave, o *op) error {
	vector, _, other := o.Counts()
	counted := func(a *access) bool { return a.vector && (a.class != writeBack || !w.machine.opts.UncountedWriteBacks) }
	for w.count(counted) > vector {
		if err := w.retire(w.oldest(counted)); err != nil {
			return err
		}
	}
	// Scalar loads come in any order: only a count of 0 says anything about them.
	late := func(a *access) bool { return a.other && (!a.scalar || other == 0) }
	for w.count(func(a *access) bool { return a.other }) > other {
		at := w.oldest(late)
		if at < 0 {
			break
		}
		if err := w.retire(at); err != nil {
			return err
		}
	}
	return nil
}

func (w *wave) count(of func(*access) bool) (n int) {
	for _, a := range w.pending {
		if of(a) {
			n++
		}
	}
	return n
}

func (w *wave) oldest(of func(*access) bool) int { return slices.IndexFunc(w.pending, of) }

// retire performs an access, if that is still to be done, and forgets it.
func (w *wave) retire(at int) error {
	a := w.pending[at]
	if err := w.perform(a); err != nil {
		return err
	}
	w.busy(a, -1)
	w.pending = slices.Delete(w.pending, at, at+1)
	w.spare = append(w.spare, a)
	return nil
}

// drift lets one of the accesses take effect that nothing holds back, or none.
func (w *wave) drift() error {
	if len(w.pending) == 0 || w.machine.random.IntN(w.patience) != 0 {
		return nil
	}
	at := w.machine.random.IntN(len(w.pending))
	a := w.pending[at]
	for _, b := range w.pending[:at] {
		if !b.performed && holds(b, a) {
			return nil
		}
	}
	return w.perform(a)
}

// holds tells whether an access has to take effect before a later one of its wave: where they overlap, in memory or
// registers, what follows an invalidation, and what a write-back is to write.
func holds(first, second *access) bool {
	if first.low < second.high && second.low < first.high {
		return true
	}
	a, b := &first.op.Dst, &second.op.Dst
	if a.Kind == isa.Vector && b.Kind == isa.Vector && int(a.N) < int(b.N)+isa.Width(b.Type) && int(b.N) < int(a.N)+isa.Width(a.Type) {
		return true
	}
	return first.class == invalidate || second.class == writeBack && (first.class == store || first.class == atomic || first.class == writeBack)
}

// ofGroup reports whether a flat access is to memory of the block, in any of its lanes.
func (a *access) ofGroup() bool {
	for m := a.exec; m != 0; m &= m - 1 {
		if a.addr[bits.TrailingZeros64(m)]>>32 == isa.SharedBase>>32 {
			return true
		}
	}
	return false
}

// flatGroup performs the flat access of a lane to memory of the block.
func (w *wave) flatGroup(a *access, lane int) error {
	lds, at := w.block.lds, uint64(uint32(a.addr[lane]))
	if at+uint64(a.size) > uint64(len(lds)) || at%uint64(min(a.size&-a.size, 4)) != 0 {
		return fmt.Errorf("%d bytes at %#x of group memory: it has %d bytes", a.size, at, len(lds))
	}
	if a.class == atomic {
		return fmt.Errorf("a flat atomic operation on group memory: no committed kernel has one")
	}
	for i := range uint64(a.size) {
		word, shift := &a.data[lane][i/4], 8*(i%4)
		switch {
		case a.class == store:
			lds[at+i] = byte(*word >> shift)
		case shift == 0:
			*word = uint32(lds[at+i])
		default:
			*word |= uint32(lds[at+i]) << shift
		}
	}
	return nil
}
