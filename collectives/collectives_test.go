package collectives_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

var reference collectivetest.Reference

// trial is one call with everything that varies.
type trial struct {
	kind      collectives.Collective
	algorithm string
	count     int
	dtype     device.DataType
	op        device.Op
	root      int
	inPlace   bool
	shift     int // elements by which buffers are off
}

func (t trial) String() string {
	return fmt.Sprintf("%v %s of %d %v %v root %d in place %v shift %d", t.kind, t.algorithm, t.count, t.dtype, t.op, t.root, t.inPlace, t.shift)
}

// elements returns how many elements the two buffers hold.
func (t trial) elements(ranks int) (in, out int) {
	in, out = t.count, t.count
	switch t.kind {
	case collectives.AllGather, collectives.Gather:
		out *= ranks
	case collectives.ReduceScatter, collectives.Scatter:
		in *= ranks
	case collectives.AllToAll:
		in, out = in*ranks, out*ranks
	}
	return in, out
}

// expect computes a rank's output, nil where it gets none.
func (t trial) expect(rank, ranks int, inputs [][]byte) []byte {
	one := t.count * t.dtype.Size()
	reduce := func(at int) []byte {
		parts := make([][]byte, ranks)
		for r := range parts {
			parts[r] = inputs[r][at : at+one]
		}
		want := make([]byte, one)
		reference.Reduce(want, parts, t.dtype, t.op, 2)
		return want
	}
	switch t.kind {
	case collectives.AllReduce:
		return reduce(0)
	case collectives.ReduceScatter:
		return reduce(rank * one)
	case collectives.Broadcast:
		return inputs[t.root]
	case collectives.AllGather:
		return bytes.Join(inputs, nil)
	case collectives.AllToAll:
		var want []byte
		for r := range ranks {
			want = append(want, inputs[r][rank*one:(rank+1)*one]...)
		}
		return want
	case collectives.Scatter:
		return inputs[t.root][rank*one : (rank+1)*one]
	case collectives.Gather:
		if rank == t.root {
			return bytes.Join(inputs, nil)
		}
	case collectives.Reduce:
		if rank == t.root {
			return reduce(0)
		}
	}
	return nil
}

func (t trial) call(c *collectives.Comm, in, out unsafe.Pointer) error {
	o := &collectives.CallOptions{Algorithm: t.algorithm, Scale: 2}
	switch t.kind {
	case collectives.AllReduce:
		return c.AllReduce(in, out, t.count, t.dtype, t.op, o)
	case collectives.AllGather:
		return c.AllGather(in, out, t.count, t.dtype, o)
	case collectives.ReduceScatter:
		return c.ReduceScatter(in, out, t.count, t.dtype, t.op, o)
	case collectives.Broadcast:
		return c.Broadcast(in, out, t.count, t.dtype, t.root, o)
	case collectives.Reduce:
		return c.Reduce(in, out, t.count, t.dtype, t.op, t.root, o)
	case collectives.AllToAll:
		return c.AllToAll(in, out, t.count, t.dtype, o)
	case collectives.Gather:
		return c.Gather(in, out, t.count, t.dtype, t.root, o)
	case collectives.Scatter:
		return c.Scatter(in, out, t.count, t.dtype, t.root, o)
	}
	return fmt.Errorf("no call for %v", t.kind)
}

// own is where in place puts a rank's small buffer in its large one.
func (t trial) own(rank int) int {
	switch t.kind {
	case collectives.AllGather, collectives.ReduceScatter:
		return rank * t.count * t.dtype.Size()
	case collectives.Gather, collectives.Scatter:
		if rank == t.root {
			return rank * t.count * t.dtype.Size()
		}
	}
	return 0
}

const guard = 64

// buffers are two guarded pieces of memory.
type buffers struct{ in, out []byte }

// run performs the trial on one rank and checks the result.
func (t trial) run(c *collectives.Comm, b buffers, seed uint64) error {
	rank, ranks, size := c.Rank(), c.Size(), t.dtype.Size()
	inputs := make([][]byte, ranks)
	nin, nout := t.elements(ranks)
	for r := range inputs {
		inputs[r] = make([]byte, nin*size)
		reference.Fill(inputs[r], t.dtype, t.op, seed, r, 0)
	}
	for i := range b.in {
		b.in[i] = 0xa5
	}
	for i := range b.out {
		b.out[i] = 0xa5
	}
	at := guard + t.shift*size
	in, out := b.in[at:at+nin*size], b.out[at:at+nout*size]
	whole := b.out
	if t.inPlace {
		if nout >= nin {
			in = out[t.own(rank) : t.own(rank)+nin*size]
		} else {
			whole = b.in
			out = in[t.own(rank) : t.own(rank)+nout*size]
		}
	}
	copy(in, inputs[rank])
	if err := t.call(c, pointer(in), pointer(out)); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	want := t.expect(rank, ranks, inputs)
	tolerance := 1
	if t.algorithm == "ring" || !c.Shared() && t.algorithm != "ports" { // partial results are rounded
		tolerance = ranks
	}
	if want != nil {
		if n := reference.Wrong(out, want, t.dtype, t.op, tolerance); n != 0 {
			return fmt.Errorf("%v: %d wrong elements of %d", t, n, len(want)/size)
		}
	} else if !t.inPlace && !untouched(out) {
		return fmt.Errorf("%v: output of a rank that gets nothing was written", t)
	}
	if !t.inPlace && !bytes.Equal(in, inputs[rank]) {
		return fmt.Errorf("%v: the input changed", t)
	}
	end := at + max(nin, nout)*size
	if !t.inPlace {
		end = at + nout*size
	}
	if !untouched(whole[:at]) || !untouched(whole[end:min(end+guard, len(whole))]) {
		return fmt.Errorf("%v: written beyond the output", t)
	}
	return nil
}

func untouched(b []byte) bool {
	for _, x := range b {
		if x != 0xa5 {
			return false
		}
	}
	return true
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

var kinds = []collectives.Collective{
	collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Broadcast, collectives.Reduce,
	collectives.AllToAll, collectives.Gather, collectives.Scatter,
}

var counts = []int{1, 2, 3, 5, 16, 63, 64, 65, 257, 1000, 4097, 20011}

// Every algorithm of every collective, with types, reductions, sizes, alignments and
// placements that vary together: each value of each meets each algorithm.
func TestResults(t *testing.T) {
	const most = 20011 + 8
	for _, n := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			o := collectives.Options{Scratch: uint64(n) * 96 << 10, Signatures: collectives.SignaturesAlways}
			job(t, n, o, func(ctx context.Context, c *collectives.Comm) error {
				own, err := c.Communicator().Alloc(uint64(2 * (most*8*n + 4096)))
				if err != nil {
					return err
				}
				defer own.Close()
				if _, err := c.Communicator().Exchange(ctx, own); err != nil {
					return err
				}
				half := int(own.Bytes() / 2)
				memory := unsafe.Slice((*byte)(address(own.Addr())), own.Bytes())
				registered := buffers{memory[:half], memory[half:]}
				heap := buffers{make([]byte, half), make([]byte, half)}
				i := 0
				for _, kind := range kinds {
					for _, algorithm := range append(c.Algorithms(kind), "") {
						for range max(4, 24/n) {
							x := trial{
								kind: kind, algorithm: algorithm, count: counts[i%len(counts)], dtype: device.DataType(i % device.DataTypes),
								op: device.Op(i / 2 % device.Ops), root: i % n, inPlace: i/3%2 == 0, shift: i / 5 % 4,
							}
							if x.count*n > most*2 {
								x.count /= 8
							}
							i += 7
							b := heap
							if algorithm == "zerocopy" || algorithm == "" && i%3 == 0 {
								b = registered
							}
							if (algorithm == "zerocopy" || algorithm == "pull") && kind == collectives.AllToAll {
								x.inPlace = false
							}
							if err := x.run(c, b, uint64(i)); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}

func address(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
