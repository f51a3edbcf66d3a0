package collectivetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Trial is one call of a collective with everything that varies. Scalars differ between ranks: see Scale.
type Trial struct {
	Kind      collectives.Collective
	Algorithm string
	Count     int
	Type      kernel.DataType
	Op        kernel.Op
	Root      int
	InPlace   bool
	Shift     int  // elements by which buffers are off
	Graph     bool // recorded and launched several times
}

// Scale is the scalar of a rank. Its products are exact for all that Fill writes, so that results do not depend on where
// they are rounded.
func Scale(rank int) float64 { return float64(2 - rank%3) }

// String names all that varies.
func (t Trial) String() string {
	return fmt.Sprintf("%v %s of %d %v %v root %d in place %v shift %d graph %v", t.Kind, t.Algorithm, t.Count, t.Type, t.Op, t.Root, t.InPlace, t.Shift, t.Graph)
}

// Kinds are the collectives that have trials.
func Kinds() []collectives.Collective {
	return []collectives.Collective{
		collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Broadcast, collectives.Reduce,
		collectives.AllToAll, collectives.Gather, collectives.Scatter,
	}
}

// Elements returns how many elements the two buffers hold.
func (t Trial) Elements(ranks int) (in, out int) {
	in, out = t.Count, t.Count
	switch t.Kind {
	case collectives.AllGather, collectives.Gather:
		out *= ranks
	case collectives.ReduceScatter, collectives.Scatter:
		in *= ranks
	case collectives.AllToAll:
		in, out = in*ranks, out*ranks
	}
	return in, out
}

// Request is the trial as selectors see it.
func (t Trial) Request(ranks int) collectives.Request {
	in, out := t.Elements(ranks)
	return collectives.Request{Collective: t.Kind, Bytes: uint64(max(in, out) * t.Type.Size()), Count: uint64(t.Count), Type: t.Type, Op: t.Op,
		Root: t.Root, InPlace: t.InPlace}
}

// Inputs are those of all ranks.
func (t Trial) Inputs(ranks int, seed uint64) [][]byte {
	in, _ := t.Elements(ranks)
	inputs := make([][]byte, ranks)
	for r := range inputs {
		inputs[r] = make([]byte, in*t.Type.Size())
		Reference{}.Fill(inputs[r], t.Type, t.Op, seed, r, 0)
	}
	return inputs
}

// Expect computes a rank's output, nil where it gets none.
func (t Trial) Expect(rank int, inputs [][]byte) []byte {
	return t.expect(rank, inputs, func() []byte { return t.reduce(inputs) })
}

// reduce computes the reduction of all inputs, over their whole length.
func (t Trial) reduce(inputs [][]byte) []byte {
	want := make([]byte, len(inputs[0]))
	op := t.Op
	if op == kernel.PreMulSum {
		op = kernel.Sum
		scaled := make([][]byte, len(inputs))
		for r, in := range inputs {
			scaled[r] = make([]byte, len(in))
			Reference{}.Reduce(scaled[r], [][]byte{in}, t.Type, t.Op, Scale(r))
		}
		inputs = scaled
	}
	Reference{}.Reduce(want, inputs, t.Type, op, 0)
	return want
}

func (t Trial) expect(rank int, inputs [][]byte, reduced func() []byte) []byte {
	one := t.Count * t.Type.Size()
	switch t.Kind {
	case collectives.AllReduce:
		return reduced()
	case collectives.ReduceScatter:
		return reduced()[rank*one : (rank+1)*one]
	case collectives.Broadcast:
		return inputs[t.Root]
	case collectives.AllGather:
		return bytes.Join(inputs, nil)
	case collectives.AllToAll:
		var want []byte
		for _, in := range inputs {
			want = append(want, in[rank*one:(rank+1)*one]...)
		}
		return want
	case collectives.Scatter:
		return inputs[t.Root][rank*one : (rank+1)*one]
	case collectives.Gather:
		if rank == t.Root {
			return bytes.Join(inputs, nil)
		}
	case collectives.Reduce:
		if rank == t.Root {
			return reduced()
		}
	}
	return nil
}

// Call makes the call on a stream; the zero stream is the host's.
func (t Trial) Call(c *collectives.Comm, in, out unsafe.Pointer, stream device.Stream) error {
	o := &collectives.CallOptions{Algorithm: t.Algorithm, Scale: Scale(c.Rank()), Stream: stream}
	switch t.Kind {
	case collectives.AllReduce:
		return c.AllReduce(in, out, t.Count, t.Type, t.Op, o)
	case collectives.AllGather:
		return c.AllGather(in, out, t.Count, t.Type, o)
	case collectives.ReduceScatter:
		return c.ReduceScatter(in, out, t.Count, t.Type, t.Op, o)
	case collectives.Broadcast:
		return c.Broadcast(in, out, t.Count, t.Type, t.Root, o)
	case collectives.Reduce:
		return c.Reduce(in, out, t.Count, t.Type, t.Op, t.Root, o)
	case collectives.AllToAll:
		return c.AllToAll(in, out, t.Count, t.Type, o)
	case collectives.Gather:
		return c.Gather(in, out, t.Count, t.Type, t.Root, o)
	case collectives.Scatter:
		return c.Scatter(in, out, t.Count, t.Type, t.Root, o)
	}
	return fmt.Errorf("no call for %v", t.Kind)
}

// own is where in place puts a rank's small buffer in its large one, in bytes.
func (t Trial) own(rank int) int {
	switch t.Kind {
	case collectives.AllGather, collectives.ReduceScatter:
		return rank * t.Count * t.Type.Size()
	case collectives.Gather, collectives.Scatter:
		if rank == t.Root {
			return rank * t.Count * t.Type.Size()
		}
	}
	return 0
}

// tolerance is how many roundings results may be off by: rings and chains round at every rank, and
// between hosts go partial results, unless everything goes over ports.
func (t Trial) tolerance(r Rig) int {
	if t.Algorithm == "ring" || strings.HasPrefix(t.Algorithm, "chain") || r.Partial && t.Algorithm != "ports" {
		return r.Ranks
	}
	return 1
}

// replays is how often a recorded call is launched.
const replays = 3

// Run performs the trial on one rank and checks the result; that nothing beyond it was
// written, and nothing at all on a rank that gets none; and, unless in place, that the
// input is what it was. The error says what is wrong.
func (t Trial) Run(r Rig, seed uint64) error {
	d := t.data(r.Ranks, seed)
	nin, nout := t.Elements(r.Ranks)
	size := t.Type.Size()
	x := run{trial: t, rig: r, input: d.inputs()[r.Rank], want: t.expect(r.Rank, d.inputs(), d.reduced), at: guard + t.Shift*size, nin: nin * size, nout: nout * size}
	x.in, x.out = place{r.In, x.at}, place{r.Out, x.at}
	if t.InPlace && nout >= nin {
		x.in = place{r.Out, x.at + t.own(r.Rank)}
	} else if t.InPlace {
		x.out = place{r.In, x.at + t.own(r.Rank)}
	}
	if err := x.all(); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	return nil
}

// run is a trial on one rank.
type run struct {
	trial     Trial
	rig       Rig
	input     []byte
	want      []byte
	in, out   place
	at        int // where buffers begin
	nin, nout int // bytes
}

// all performs the call, from a graph several times, and checks each.
func (x *run) all() (failed error) {
	call := func() error { return x.rig.Call(x.trial, x.in.pointer(), x.out.pointer()) }
	times := 1
	if x.trial.Graph {
		if x.rig.Graph == nil {
			return errors.New("there is nothing to record calls with")
		}
		launch, free, err := x.rig.Graph(call)
		if err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		defer func() { failed = errors.Join(failed, free()) }()
		call, times = launch, replays
	}
	for range times {
		if err := x.once(call); err != nil {
			return err
		}
	}
	return nil
}

func (x *run) once(call func() error) error {
	// The window of a piece is what a call could reach, with guards before and behind.
	end := x.at + max(x.nin, x.nout) + guard
	pattern := bytes.Repeat([]byte{untouchedByte}, end)
	if err := errors.Join(x.rig.In.Write(pattern, 0), x.rig.Out.Write(pattern, 0), x.in.buffer.Write(x.input, x.in.at)); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if x.rig.Settle != nil {
		if err := x.rig.Settle(); err != nil {
			return err
		}
	}
	whole, input := make([]byte, end), make([]byte, len(x.input))
	if err := errors.Join(x.out.buffer.Read(whole, 0), x.in.buffer.Read(input, x.in.at)); err != nil {
		return err
	}
	return x.check(whole, input)
}

// check looks at the window of the piece in which the output is, and at the input.
func (x *run) check(whole, input []byte) error {
	t, got := x.trial, whole[x.out.at:x.out.at+x.nout]
	switch {
	case x.want != nil:
		if n := (Reference{}).Wrong(got, x.want, t.Type, t.Op, t.tolerance(x.rig)); n != 0 {
			return fmt.Errorf("%d wrong elements of %d", n, len(x.want)/t.Type.Size())
		}
	case !t.InPlace && !untouched(got):
		return errors.New("output of a rank that gets nothing was written")
	}
	if !t.InPlace && !bytes.Equal(input, x.input) {
		return errors.New("the input changed")
	}
	end := x.at + x.nout
	if t.InPlace {
		end = x.at + max(x.nin, x.nout)
	}
	if !untouched(whole[:x.at]) || !untouched(whole[end:]) {
		return errors.New("written beyond the output")
	}
	return nil
}
