package actor_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

// Every type and operation: random patterns, which hold NaNs, infinities,
// subnormals and values that overflow when added, and small values, whose sums are
// rounded. Counts leave all kinds of tail; addresses are off by bytes.
func TestReduceEveryTypeAndOperation(t *testing.T) {
	for _, arch := range []string{"x86-64-v2", "x86-64-v3", "x86-64-v4"} {
		t.Run(arch, func(t *testing.T) {
			r := newRig(t, arch)
			for typ := kernel.DataType(0); typ < kernel.DataTypes; typ++ {
				k := r.kernel(typ.String())
				for op := kernel.Op(0); op < kernel.Ops; op++ {
					t.Run(fmt.Sprintf("%v/%v", typ, op), func(t *testing.T) {
						c := reduceCase{expected: expected{typ: typ, op: op, scale: 3}, seed: uint64(typ)*100 + uint64(op)}
						for _, n := range []int{1, 2, 3, 5} {
							for _, count := range []int{0, 1, 7, 67, 1100} {
								c.inputs, c.count, c.shift = n, count, 0
								c.run(t, r, k)
								c.shift = count%7 + 1
								c.run(t, r, k)
							}
						}
					})
				}
			}
		})
	}
}

func TestReduceManyInputs(t *testing.T) {
	r := newRig(t, "")
	for _, typ := range []kernel.DataType{kernel.Float32, kernel.Float16, kernel.Int8, kernel.Uint8} {
		k := r.kernel(typ.String())
		for _, n := range []int{16, 17, 40, 128, 130, 255, 256, 257, 300} {
			c := reduceCase{expected: expected{typ: typ, op: kernel.Avg}, inputs: n, count: 130, seed: uint64(n)}
			c.run(t, r, k)
		}
	}
}

// The last step of a ring divides by the number of ranks, not of inputs; its earlier
// inputs are sums already.
func TestReducePartialResults(t *testing.T) {
	r := newRig(t, "")
	for _, typ := range []kernel.DataType{kernel.Float32, kernel.BFloat16, kernel.Int32} {
		k := r.kernel(typ.String())
		avg := reduceCase{expected: expected{typ: typ, op: kernel.Avg, divisor: 7}, inputs: 2, count: 100, seed: 1}
		avg.run(t, r, k)
		mul := reduceCase{expected: expected{typ: typ, op: kernel.PreMulSum, scale: 2, partial: 1}, inputs: 3, count: 100, seed: 2}
		mul.run(t, r, k)
	}
}

func TestReduceInPlace(t *testing.T) {
	r := newRig(t, "")
	for typ := kernel.DataType(0); typ < kernel.DataTypes; typ++ {
		k := r.kernel(typ.String())
		for _, n := range []int{2, 3} {
			for into := range n {
				c := reduceCase{expected: expected{typ: typ, op: kernel.Sum}, inputs: n, count: 1100, inPlace: into + 1, seed: uint64(into)}
				c.run(t, r, k)
			}
		}
	}
}

// Inputs that arrive as packets while the kernel waits for them.
func TestReducePackets(t *testing.T) {
	r := newRig(t, "")
	for typ := kernel.DataType(0); typ < kernel.DataTypes; typ++ {
		k := r.kernel(typ.String())
		for _, source := range []actor.Source{actor.FromLL8, actor.FromLL16} {
			for _, op := range []kernel.Op{kernel.Sum, kernel.Max, kernel.Avg, kernel.PreMulSum} {
				for _, n := range []int{1, 2, 5, 18} {
					c := reduceCase{expected: expected{typ: typ, op: op, scale: 2}, inputs: n, count: 301, source: source, seed: uint64(n)}
					c.run(t, r, k)
				}
			}
		}
	}
}

// reduceCase is one reduction.
type reduceCase struct {
	expected
	inputs, count int
	shift         int // bytes by which addresses are off
	inPlace       int // 1 plus the input that is the output as well
	source        actor.Source
	seed          uint64
}

func (c reduceCase) run(t *testing.T, r *rig, k device.Kernel) {
	t.Helper()
	size := c.typ.Size()
	bytes := c.count * size
	rng := rand.New(rand.NewPCG(c.seed, uint64(c.inputs*100000+c.count)))
	inputs, original := make([][]byte, c.inputs), make([][]byte, c.inputs)
	for i := range inputs {
		inputs[i] = r.scratch(bytes, c.shift+i)
		fill(rng, inputs[i], c.typ)
		original[i] = append([]byte(nil), inputs[i]...)
	}
	out := r.scratch(bytes, c.shift)
	if c.inPlace > 0 {
		out = inputs[c.inPlace-1]
	}
	args := actor.ReduceArgs{
		Control: put(r, kernel.WaitControl{}), Out: addr(out), Count: uint64(c.count), Scale: c.scale, N: uint32(c.inputs),
		Op: uint32(c.op), Divisor: c.divisor, Partial: uint32(c.partial), Source: c.source, Flag: 9, Failed: put(r, uint32(0)),
	}
	pointers := make([]uintptr, c.inputs)
	for i, in := range inputs {
		pointers[i] = addr(in)
	}
	if c.source != actor.Plain {
		args.Self = uint32(c.inputs / 2)
		for i, in := range inputs {
			if i != int(args.Self) {
				pointers[i] = addr(r.scratch(2*bytes+64, 0))
				defer send(pointers[i], in, args.Flag)()
			}
		}
	}
	args.Inputs = put(r, pointers...)
	launch(r, k, &args)
	if *at[uint32](args.Failed) != 0 {
		t.Fatal("the kernel left a wait")
	}
	for e := range c.count {
		want, nan := c.element(original, e*size)
		got := pattern(out[e*size:], size)
		if nan && isNaN(c.typ, got) || !nan && got == want {
			continue
		}
		var from []string
		for _, in := range original {
			from = append(from, fmt.Sprintf("%#x", pattern(in[e*size:], size)))
		}
		t.Fatalf("%v %v of %d inputs, element %d of %d: %#x, expected %#x (NaN %v) from %v", c.typ, c.op, c.inputs, e, c.count, got, want, nan, from)
	}
}

// send writes packets of 8 bytes from another goroutine, and returns a function that
// waits for it.
func send(to uintptr, payload []byte, flag uint32) func() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < len(payload); i += 4 {
			var word [4]byte
			copy(word[:], payload[i:])
			atomic.StoreUint64(at[uint64](to+uintptr(2*i)), uint64(flag)<<32|uint64(binary.LittleEndian.Uint32(word[:])))
		}
		if len(payload)%8 != 0 && len(payload)%8 <= 4 { // the second half of the last LL16 packet
			atomic.StoreUint64(at[uint64](to+uintptr(2*((len(payload)+3)/4*4))), uint64(flag)<<32)
		}
	}()
	return func() { <-done }
}

// fill makes half of the elements random patterns and half of them small.
func fill(rng *rand.Rand, b []byte, typ kernel.DataType) {
	size := typ.Size()
	for i := 0; i < len(b); i += size {
		v := rng.Uint64()
		if rng.IntN(2) == 0 {
			v = small(rng, typ)
		}
		for k := range size {
			b[i+k] = byte(v >> (8 * k))
		}
	}
}

func small(rng *rand.Rand, typ kernel.DataType) uint64 {
	x := float32(rng.NormFloat64())
	switch typ {
	case kernel.Float32:
		return uint64(*(*uint32)(unsafe.Pointer(&x)))
	case kernel.Float64:
		y := rng.NormFloat64()
		return *(*uint64)(unsafe.Pointer(&y))
	}
	if f := formats[typ]; f != nil {
		return uint64(f.encode(x))
	}
	return uint64(int64(rng.IntN(20) - 10))
}
