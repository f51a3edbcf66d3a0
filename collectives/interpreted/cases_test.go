package interpreted_test

import (
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// sizes are the elements of a rank's input and output for a count.
func sizes(k collective.Kind, count uint64, ranks int) (in, out uint64) {
	all := count * uint64(ranks)
	switch k {
	case collective.AllGather:
		return count, all
	case collective.ReduceScatter:
		return all, count
	case collective.AllToAll:
		return all, all
	case collective.Barrier:
		return 0, 0
	}
	return count, count
}

// set writes the inputs, and enqueues the launches of an entry. It returns the outputs that are expected, by rank; nil: none.
func set(t testing.TB, s *interpret.Session, e *entry, x shape) (*job, [][]byte) {
	t.Helper()
	switch {
	case e.name == "mscclpp_steps_signal":
		j := newJob(t, s, x, 0, 0)
		return j, j.setSignals(t, e)
	case e.name == "mscclpp_steps_sum", e.name == "mscclpp_steps_move":
		bytes := x.bytes / uint64(e.dtype.Size()) * uint64(e.dtype.Size())
		j := newJob(t, s, x, bytes, bytes)
		return j, j.setStep(t, e, bytes)
	case e.algorithm() == "few_ll128" || e.algorithm() == "ll128" || e.name == "mscclpp_transfers_chunk":
		j := newJob(t, s, x, x.bytes*uint64(x.ranks), x.bytes*uint64(x.ranks))
		return j, j.setMessages(t, e)
	}
	k, ok := e.collective()
	if !ok {
		t.Fatalf("%v: nobody knows how to launch it", e)
	}
	element := uint64(e.dtype.Size())
	count := x.bytes / element
	in, out := sizes(k, count, x.ranks)
	j := newJob(t, s, x, in*element, out*element)
	return j, j.setCollective(t, e, k, count)
}

func (j *job) setCollective(t testing.TB, e *entry, k collective.Kind, count uint64) [][]byte {
	t.Helper()
	inputs := j.fill(t, e.dtype, j.in)
	traits := choose.TraitsOf(e.algorithm(), k)
	if k == collective.Barrier {
		count = 0
	}
	for n := range j.launches {
		for r := range j.ranks {
			l := interpret.Launch{Image: e.image, Entry: e.name, Rank: r, Grid: j.grid, Block: j.block, Overlap: n > 0 && (traits.LL || traits.Wide() || k == collective.Barrier)}
			if e.bytes == int(unsafe.Sizeof(kernelargs.LLArgs{})) {
				l.Arguments = bytesOf(j.packets(e, r, count, kernelargs.Release(n%3)))
			} else {
				l.Arguments = bytesOf(j.args(e, r, count))
			}
			must(t, e.String(), j.session.Launch(&l))
		}
	}
	switch k {
	case collective.Barrier:
		return nil
	case collective.Broadcast: // the root's data is in its output, too
		must(t, "root", j.session.Write(at(atOutput, int(j.root())), inputs[j.root()]))
	}
	return j.expected(e, k, inputs)
}

// fill writes the inputs of all ranks.
func (j *job) fill(t testing.TB, d kernel.DataType, bytes uint64) [][]byte {
	t.Helper()
	inputs := make([][]byte, j.ranks)
	for r := range inputs {
		inputs[r] = make([]byte, bytes)
		collectivetest.Reference{}.Fill(inputs[r], d, j.op, 7, r, 0)
		if bytes > 0 {
			must(t, "input", j.session.Write(at(atInput, r), inputs[r]))
		}
	}
	return inputs
}

// expected computes the outputs in plain Go. Reductions are in rank order.
func (j *job) expected(e *entry, k collective.Kind, inputs [][]byte) [][]byte {
	out := make([][]byte, j.ranks)
	reduce := func(from, bytes uint64) []byte {
		parts, dst := make([][]byte, j.ranks), make([]byte, bytes)
		for r := range parts {
			parts[r] = inputs[r][from : from+bytes]
		}
		collectivetest.Reference{}.Reduce(dst, parts, e.dtype, j.op, 1)
		return dst
	}
	for r := range out {
		switch k {
		case collective.AllReduce:
			out[r] = reduce(0, j.in)
		case collective.Reduce:
			if uint32(r) == j.root() {
				out[r] = reduce(0, j.in)
			}
		case collective.ReduceScatter:
			out[r] = reduce(uint64(r)*j.out, j.out)
		case collective.Broadcast:
			out[r] = inputs[j.root()]
		case collective.AllGather:
			for _, in := range inputs {
				out[r] = append(out[r], in...)
			}
		case collective.AllToAll:
			one := j.in / uint64(j.ranks)
			for _, in := range inputs {
				out[r] = append(out[r], in[uint64(r)*one:uint64(r+1)*one]...)
			}
		}
	}
	return out
}

// setSignals has all ranks open and end calls by turns: each signals a step and waits for those of its peers.
func (j *job) setSignals(t testing.TB, e *entry) [][]byte {
	t.Helper()
	for n := range 2 * j.launches {
		for r := range j.ranks {
			a := j.steps(r)
			a.Signal = kernelargs.StepOpen
			if n%2 == 1 {
				a.Signal = kernelargs.StepDone
			}
			a.Wait = a.Signal
			must(t, e.String(), j.session.Launch(&interpret.Launch{Image: e.image, Entry: e.name, Rank: r, Grid: 1, Block: 32, Arguments: bytesOf(a)}))
		}
	}
	return nil
}

// setStep has all ranks sum, or move, what lies in their scratch.
func (j *job) setStep(t testing.TB, e *entry, bytes uint64) [][]byte {
	t.Helper()
	inputs := j.fill(t, e.dtype, bytes)
	stride := (bytes + 511) / 512 * 512
	out := make([][]byte, j.ranks)
	for r := range j.ranks {
		a := j.steps(r)
		a.Count, a.Inputs, a.Stride = bytes/uint64(e.dtype.Size()), a.Scratch[r]+uintptr(j.geometry.Stages), stride
		out[r] = inputs[r]
		if e.name == "mscclpp_steps_move" {
			a.Count = bytes
		} else {
			for p := range inputs {
				must(t, "scratch", j.session.Write(uint64(a.Inputs)+uint64(p)*stride, inputs[p]))
			}
			out[r] = make([]byte, bytes)
			collectivetest.Reference{}.Reduce(out[r], inputs, e.dtype, j.op, 1)
		}
		must(t, e.String(), j.session.Launch(&interpret.Launch{Image: e.image, Entry: e.name, Rank: r, Grid: j.grid, Block: j.block, Arguments: bytesOf(a)}))
	}
	return out
}

// setMessages has every rank send to every other.
func (j *job) setMessages(t testing.TB, e *entry) [][]byte {
	t.Helper()
	bytes := j.in / uint64(j.ranks)
	inputs := j.fill(t, kernel.Uint8, j.in)
	out := make([][]byte, j.ranks)
	for n := range j.launches {
		for r := range j.ranks {
			list := j.messages(r, bytes)
			l := interpret.Launch{Image: e.image, Entry: e.name, Rank: r, Grid: j.grid, Block: j.block, Overlap: n > 0 && e.name != "mscclpp_transfers_chunk"}
			if e.bytes == int(unsafe.Sizeof(kernelargs.LLTransferArgs{})) {
				c := &j.common[r]
				a := &kernelargs.LLTransferArgs{Control: c.Control, State: c.State, Notes: c.Notes, Rank: c.Rank, Ranks: c.Ranks, Release: uint32(kernelargs.ReleaseAtOnce), Lines: j.lines(list)}
				copy(a.Scratch[:], c.Scratch[:j.ranks])
				a.Transfers = uint32(copy(a.List[:], list))
				l.Arguments = bytesOf(a)
			} else {
				a := &kernelargs.TransferArgs{Common: j.common[r], Lines: j.lines(list), LongBytes: 1 << 40, BesideSlots: kernelargs.BesideSlots}
				a.Transfers = uint32(copy(a.List[:], list))
				l.Arguments = bytesOf(a)
			}
			must(t, e.String(), j.session.Launch(&l))
		}
	}
	for r := range out {
		out[r] = make([]byte, j.out)
		for p := range j.ranks {
			if p != r {
				copy(out[r][uint64(p)*bytes:], inputs[p][uint64(r)*bytes:uint64(r+1)*bytes])
			}
		}
	}
	return out
}

// expect has every schedule compare the outputs.
func (j *job) expect(t testing.TB, out [][]byte) {
	t.Helper()
	must(t, "save", j.session.Save())
	for r, p := range out {
		if len(p) == 0 {
			continue
		}
		must(t, "expected", j.session.Write(at(atOutput, r), p))
		must(t, "expect", j.session.Expect(at(atOutput, r), len(p)))
	}
	must(t, "restore", j.session.Restore())
}
