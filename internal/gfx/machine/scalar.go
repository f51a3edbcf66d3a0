package machine

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
)

// scalarOperand reads a source of a scalar instruction.
func (w *wave) scalarOperand(o *isa.Operand) uint64 {
	switch {
	case o.Kind == isa.Constant:
		return o.Value
	case isa.Width(o.Type) == 2:
		return w.pair(o.N)
	}
	return uint64(w.s[o.N])
}

func (w *wave) setScalar(o *isa.Operand, v uint64) {
	if isa.Width(o.Type) == 2 {
		w.setPair(o.N, v)
	} else {
		w.s[o.N] = uint32(v)
	}
}

// two makes an instruction of a function of two numbers that returns a result and the condition code.
func two(f func(a, b uint64, scc bool) (uint64, bool)) func(*wave, *op) error {
	return func(w *wave, o *op) error {
		r, scc := f(w.scalarOperand(&o.Src[0]), w.scalarOperand(&o.Src[1]), w.scc)
		w.setScalar(&o.Dst, r)
		w.scc = scc
		return nil
	}
}

// logic sets the condition code where the result is not 0.
func logic(f func(a, b uint64) uint64, bits int) func(*wave, *op) error {
	mask := allLanes >> (64 - bits)
	return two(func(a, b uint64, _ bool) (uint64, bool) {
		r := f(a, b) & mask
		return r, r != 0
	})
}

// plain leaves the condition code.
func plain(f func(a, b uint64) uint64) func(*wave, *op) error {
	return two(func(a, b uint64, scc bool) (uint64, bool) { return f(a, b), scc })
}

func compare(f func(a, b uint64) bool) func(*wave, *op) error {
	return func(w *wave, o *op) error {
		w.scc = f(w.scalarOperand(&o.Src[0]), w.scalarOperand(&o.Src[1]))
		return nil
	}
}

// constant is an instruction of one register and a number of 16 bits.
func constant(f func(w *wave, a uint32, k int32) uint32, result bool) func(*wave, *op) error {
	return func(w *wave, o *op) error {
		if !result {
			f(w, w.s[o.Src[0].N], o.Imm)
			return nil
		}
		w.s[o.Dst.N] = f(w, w.s[o.Dst.N], o.Imm)
		return nil
	}
}

func branch(taken func(w *wave) bool) func(*wave, *op) error {
	return func(w *wave, o *op) error {
		if taken(w) {
			w.next += uint64(int64(o.Imm) * 4)
		}
		return nil
	}
}

// saveExec keeps the mask of lanes and combines it with a source.
func saveExec(f func(s, exec uint64) uint64) func(*wave, *op) error {
	return func(w *wave, o *op) error {
		s, exec := w.scalarOperand(&o.Src[0]), w.exec()
		w.setPair(o.Dst.N, exec)
		w.setExec(f(s, exec))
		w.scc = w.exec() != 0
		return nil
	}
}

func i32(a uint64) int32 { return int32(uint32(a)) }

func overflow(r int64) bool { return r != int64(int32(r)) }

// scalars executes scalar instructions.
var scalars map[string]func(*wave, *op) error

func init() {
	scalars = map[string]func(*wave, *op) error{
		"s_nop":     func(*wave, *op) error { return nil },
		"s_sleep":   func(w *wave, _ *op) error { w.asleep = true; return nil },
		"s_endpgm":  func(w *wave, _ *op) error { return w.end() },
		"s_barrier": func(w *wave, _ *op) error { w.barrier(); return nil },
		"s_waitcnt": waitCounts,

		"s_branch":         branch(func(*wave) bool { return true }),
		"s_cbranch_scc0":   branch(func(w *wave) bool { return !w.scc }),
		"s_cbranch_scc1":   branch(func(w *wave) bool { return w.scc }),
		"s_cbranch_vccz":   branch(func(w *wave) bool { return w.pair(isa.VCC) == 0 }),
		"s_cbranch_vccnz":  branch(func(w *wave) bool { return w.pair(isa.VCC) != 0 }),
		"s_cbranch_execz":  branch(func(w *wave) bool { return w.exec() == 0 }),
		"s_cbranch_execnz": branch(func(w *wave) bool { return w.exec() != 0 }),

		"s_movk_i32": constant(func(_ *wave, _ uint32, k int32) uint32 { return uint32(k) }, true),
		"s_mulk_i32": constant(func(_ *wave, a uint32, k int32) uint32 { return a * uint32(k) }, true),
		"s_addk_i32": constant(func(w *wave, a uint32, k int32) uint32 {
			w.scc = overflow(int64(int32(a)) + int64(k))
			return a + uint32(k)
		}, true),
		"s_cmpk_lg_i32": constant(func(w *wave, a uint32, k int32) uint32 { w.scc = int32(a) != k; return 0 }, false),
		"s_cmpk_gt_u32": constant(func(w *wave, a uint32, k int32) uint32 { w.scc = a > uint32(uint16(k)); return 0 }, false),
		"s_cmpk_lt_u32": constant(func(w *wave, a uint32, k int32) uint32 { w.scc = a < uint32(uint16(k)); return 0 }, false),
	}
	for _, more := range []map[string]func(*wave, *op) error{arithmetic, comparisons, moves} {
		for name, f := range more {
			scalars[name] = f
		}
	}
}

var arithmetic = map[string]func(*wave, *op) error{
	"s_add_u32": two(func(a, b uint64, _ bool) (uint64, bool) { return a + b, a+b > 0xffffffff }),
	"s_sub_u32": two(func(a, b uint64, _ bool) (uint64, bool) { return a - b, b > a }),
	"s_addc_u32": two(func(a, b uint64, scc bool) (uint64, bool) {
		r := a + b + one(scc)
		return r, r > 0xffffffff
	}),
	"s_subb_u32": two(func(a, b uint64, scc bool) (uint64, bool) { return a - b - one(scc), b+one(scc) > a }),
	"s_add_i32":  two(func(a, b uint64, _ bool) (uint64, bool) { return a + b, overflow(int64(i32(a)) + int64(i32(b))) }),
	"s_sub_i32":  two(func(a, b uint64, _ bool) (uint64, bool) { return a - b, overflow(int64(i32(a)) - int64(i32(b))) }),
	"s_min_u32":  two(func(a, b uint64, _ bool) (uint64, bool) { return min(a, b), a < b }),
	"s_max_u32":  two(func(a, b uint64, _ bool) (uint64, bool) { return max(a, b), a > b }),

	"s_mul_i32":    plain(func(a, b uint64) uint64 { return a * b }),
	"s_mul_hi_u32": plain(func(a, b uint64) uint64 { return a * b >> 32 }),

	"s_and_b32":   logic(func(a, b uint64) uint64 { return a & b }, 32),
	"s_and_b64":   logic(func(a, b uint64) uint64 { return a & b }, 64),
	"s_or_b32":    logic(func(a, b uint64) uint64 { return a | b }, 32),
	"s_or_b64":    logic(func(a, b uint64) uint64 { return a | b }, 64),
	"s_xor_b32":   logic(func(a, b uint64) uint64 { return a ^ b }, 32),
	"s_xor_b64":   logic(func(a, b uint64) uint64 { return a ^ b }, 64),
	"s_andn2_b32": logic(func(a, b uint64) uint64 { return a &^ b }, 32),
	"s_andn2_b64": logic(func(a, b uint64) uint64 { return a &^ b }, 64),
	"s_orn2_b64":  logic(func(a, b uint64) uint64 { return a | ^b }, 64),
	"s_lshl_b32":  logic(func(a, b uint64) uint64 { return a << (b & 31) }, 32),
	"s_lshl_b64":  logic(func(a, b uint64) uint64 { return a << (b & 63) }, 64),
	"s_lshr_b32":  logic(func(a, b uint64) uint64 { return a >> (b & 31) }, 32),
	"s_lshr_b64":  logic(func(a, b uint64) uint64 { return a >> (b & 63) }, 64),
	"s_ashr_i32":  logic(func(a, b uint64) uint64 { return uint64(uint32(i32(a) >> (b & 31))) }, 32),
	"s_bfe_u32":   logic(func(a, b uint64) uint64 { return a >> (b & 31) & (1<<min(b>>16&0x7f, 32) - 1) }, 32),
	"s_bfe_i32": logic(func(a, b uint64) uint64 {
		offset, width := b&31, b>>16&0x7f
		if width == 0 {
			return 0
		}
		up := 64 - min(width, 32)
		return uint64(uint32(int64(a>>offset<<up) >> up))
	}, 32),
}

var comparisons = map[string]func(*wave, *op) error{
	"s_cmp_gt_i32":  compare(func(a, b uint64) bool { return i32(a) > i32(b) }),
	"s_cmp_lt_i32":  compare(func(a, b uint64) bool { return i32(a) < i32(b) }),
	"s_cmp_eq_u32":  compare(func(a, b uint64) bool { return a == b }),
	"s_cmp_lg_u32":  compare(func(a, b uint64) bool { return a != b }),
	"s_cmp_gt_u32":  compare(func(a, b uint64) bool { return a > b }),
	"s_cmp_ge_u32":  compare(func(a, b uint64) bool { return a >= b }),
	"s_cmp_lt_u32":  compare(func(a, b uint64) bool { return a < b }),
	"s_cmp_le_u32":  compare(func(a, b uint64) bool { return a <= b }),
	"s_cmp_eq_u64":  compare(func(a, b uint64) bool { return a == b }),
	"s_cmp_lg_u64":  compare(func(a, b uint64) bool { return a != b }),
	"s_bitcmp0_b32": compare(func(a, b uint64) bool { return a>>(b&31)&1 == 0 }),
	"s_bitcmp1_b32": compare(func(a, b uint64) bool { return a>>(b&31)&1 != 0 }),
	"s_cselect_b32": choose,
	"s_cselect_b64": choose,
	"s_bcnt1_i32_b64": func(w *wave, o *op) error {
		n := bits.OnesCount64(w.scalarOperand(&o.Src[0]))
		w.s[o.Dst.N], w.scc = uint32(n), n != 0
		return nil
	},
}

func choose(w *wave, o *op) error {
	from := &o.Src[1]
	if w.scc {
		from = &o.Src[0]
	}
	w.setScalar(&o.Dst, w.scalarOperand(from))
	return nil
}

var moves = map[string]func(*wave, *op) error{
	"s_mov_b32":  plain(func(a, _ uint64) uint64 { return a }),
	"s_mov_b64":  plain(func(a, _ uint64) uint64 { return a }),
	"s_not_b32":  logic(func(a, _ uint64) uint64 { return ^a }, 32),
	"s_not_b64":  logic(func(a, _ uint64) uint64 { return ^a }, 64),
	"s_brev_b32": plain(func(a, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) }),
	"s_abs_i32": logic(func(a, _ uint64) uint64 {
		if i32(a) < 0 {
			return uint64(uint32(-i32(a)))
		}
		return a
	}, 32),
	"s_bitset1_b32": func(w *wave, o *op) error {
		w.s[o.Dst.N] |= 1 << (w.scalarOperand(&o.Src[0]) & 31)
		return nil
	},
	"s_getpc_b64": func(w *wave, o *op) error { w.setPair(o.Dst.N, w.next); return nil },
	"s_setpc_b64": func(w *wave, o *op) error { w.next = w.scalarOperand(&o.Src[0]); return nil },
	"s_swappc_b64": func(w *wave, o *op) error {
		to := w.scalarOperand(&o.Src[0])
		w.setPair(o.Dst.N, w.next)
		w.next = to
		return nil
	},
	"s_and_saveexec_b64":   saveExec(func(s, exec uint64) uint64 { return s & exec }),
	"s_or_saveexec_b64":    saveExec(func(s, exec uint64) uint64 { return s | exec }),
	"s_andn2_saveexec_b64": saveExec(func(s, exec uint64) uint64 { return s &^ exec }),
}

// ticks is the device's clock, in units of 10 ns.
func (m *Machine) ticks() uint64 {
	const perTick = 64 // instructions of waves that pass in one
	if m.opts.RealTime {
		return uint64(time.Now().UnixNano()) / 10
	}
	return m.clock / perTick
}

// scalarMemory loads into scalar registers, or reads the clock.
func scalarMemory(w *wave, o *op) error {
	n := isa.Width(o.Dst.Type)
	a := w.newAccess(o)
	a.scalar, a.other = true, true
	if o.Name == "s_memrealtime" {
		ticks := w.machine.ticks()
		a.data[0] = [4]uint32{uint32(ticks), uint32(ticks >> 32)}
		a.performed = true
		w.scalarResults(a)
		return w.enqueue(a)
	}
	a.addr[0] = w.pair(o.Base.N) + uint64(int64(o.Offset))
	if a.addr[0]%4 != 0 {
		return fmt.Errorf("scalar load from %#x: expected a multiple of 4", a.addr[0])
	}
	a.size = n * 4
	return w.enqueue(a)
}
