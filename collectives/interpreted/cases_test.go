package interpreted_test

import (
	"bytes"
	"slices"
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

// set writes the inputs, and enqueues the launches of an entry. It returns the outputs that are expected, by call and rank;
// nil: none.
func set(t testing.TB, s *interpret.Session, e *entry, x shape) (*job, [][][]byte) {
	t.Helper()
	switch {
	case e.name == "mscclpp_steps_signal":
		j := newJob(t, s, x, x.bytes, x.bytes*uint64(x.ranks))
		return j, j.setSignals(t, e)
	case e.name == "mscclpp_steps_sum", e.name == "mscclpp_steps_move":
		x.launches = 1
		bytes := x.bytes / uint64(e.dtype.Size()) * uint64(e.dtype.Size())
		j := newJob(t, s, x, bytes, bytes)
		return j, j.setStep(t, e, bytes)
	case e.algorithm() == "few_ll128" || e.algorithm() == "ll128" || e.name == "mscclpp_transfers_chunk":
		j := newJob(t, s, x, x.bytes*uint64(x.ranks), x.bytes*uint64(x.ranks))
		return j, j.setMessages(t, e)
	case e.name == "mscclpp_barrier_signal" || e.name == "mscclpp_barrier_switch":
		j := newJob(t, s, x, x.bytes*uint64(x.launches), x.bytes)
		return j, j.setBarriers(t, e)
	}
	k, ok := e.collective()
	if !ok {
		t.Fatalf("%v: nobody knows how to launch it", e)
	}
	element := uint64(e.dtype.Size())
	if x.placed = e.algorithm() == choose.SwitchZerocopy; x.placed && k != collective.AllReduce {
		x.bytes = x.bytes / 16 * 16 // parts begin where words do
	}
	count := x.bytes / element
	in, out := sizes(k, count, x.ranks)
	j := newJob(t, s, x, in*element, out*element)
	return j, j.setCollective(t, e, k, count)
}

func (j *job) setCollective(t testing.TB, e *entry, k collective.Kind, count uint64) [][][]byte {
	t.Helper()
	inputs := j.fill(t, e.dtype, j.in)
	if choose.TraitsOf(e.algorithm(), k).Protocol.Area == kernelargs.LamportArea {
		for r := range j.ranks {
			g := &j.geometry
			must(t, "sentinels", j.session.Write(at(atScratch, r)+g.Lamport, bytes.Repeat([]byte{kernelargs.Sentinel}, int(2*g.LamportHalf))))
		}
	}
	out := make([][][]byte, j.launches)
	for n := range j.launches {
		j.enqueue(t, e, k, count, n)
		j.behind(t, n)
		if choose.TraitsOf(e.algorithm(), k).Divided {
			j.usePipes(t, n)
		}
		out[n] = j.expected(e, k, inputs[n])
	}
	return out
}

// enqueue enqueues call n of a collective on all ranks.
func (j *job) enqueue(t testing.TB, e *entry, k collective.Kind, count uint64, n int) {
	t.Helper()
	traits := choose.TraitsOf(e.algorithm(), k)
	for r := range j.ranks {
		l := interpret.Launch{Image: e.image, Entry: e.name, Rank: r, Grid: j.grid, Block: j.block, Overlap: n > 0 && traits.Overlaps()}
		if e.bytes == int(unsafe.Sizeof(kernelargs.LLArgs{})) {
			l.Arguments = bytesOf(j.packets(e, r, count, kernelargs.Release(n%3)))
		} else {
			l.Arguments = bytesOf(j.args(e, r, count, n))
		}
		must(t, e.String(), j.session.Launch(&l))
	}
}

// setBarriers has the program use what barriers promise: behind each one a rank writes a part of its buffer, and behind the
// next one its neighbor takes that away and spoils it.
func (j *job) setBarriers(t testing.TB, e *entry) [][][]byte {
	t.Helper()
	inputs := j.fill(t, kernel.Uint8, j.in)
	out := make([][][]byte, j.launches)
	part := func(n int) uint64 { return uint64(n) * j.out }
	for n := range j.launches {
		j.enqueue(t, e, collective.Barrier, 0, n)
		if j.caller == callerNever || j.caller == callerAtEnd && n+1 < j.launches {
			continue
		}
		out[n] = make([][]byte, j.ranks)
		for r := range j.ranks {
			next := (r + 1) % j.ranks
			a := callerArgs{source: at(atSource, r), input: at(atInput, r) + part(n), in: j.out, output: at(atInput, next), result: at(atResult, r) + part(n), out: j.out}
			if j.caller == callerBetween && n > 0 {
				a.output += part(n - 1)
				out[n][r] = inputs[1][next][:j.out]
			}
			if n == 0 || j.caller == callerAtEnd {
				a.out = 0
			}
			j.callerOf(t, r, a)
		}
	}
	return out
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
			if uint32(r) != j.root() {
				out[r] = inputs[j.root()]
			}
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

// setSignals has all ranks open and end calls by turns, as around copies: each signals a step and waits for those of its
// peers. Where there is a caller, a kernel of its own stands for the copies of an all-gather.
func (j *job) setSignals(t testing.TB, e *entry) [][][]byte {
	t.Helper()
	inputs := j.fill(t, kernel.Uint8, j.in)
	out := make([][][]byte, j.launches)
	for n := range j.launches {
		j.signal(t, e, kernelargs.StepOpen)
		for r := range j.ranks {
			for p := range j.ranks {
				if j.caller == callerBetween {
					j.callerOf(t, r, callerArgs{source: at(atInput, r), input: at(atOutput, p) + uint64(r)*j.in, in: j.in})
				}
			}
		}
		j.signal(t, e, kernelargs.StepDone)
		if j.caller != callerBetween {
			continue
		}
		j.behind(t, n)
		out[n] = make([][]byte, j.ranks)
		for r := range out[n] {
			out[n][r] = slices.Concat(inputs[n]...)
		}
	}
	return out
}

func (j *job) signal(t testing.TB, e *entry, step uint32) {
	t.Helper()
	for r := range j.ranks {
		a := j.steps(r)
		a.Signal, a.Wait = step, step
		must(t, e.String(), j.session.Launch(&interpret.Launch{Image: e.image, Entry: e.name, Rank: r, Grid: 1, Block: 32, Arguments: bytesOf(a)}))
	}
}

// setStep has all ranks sum, or move, what lies in their scratch.
func (j *job) setStep(t testing.TB, e *entry, bytes uint64) [][][]byte {
	t.Helper()
	inputs := j.fill(t, e.dtype, bytes)[0]
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
	j.behind(t, 0)
	return [][][]byte{out}
}

// setMessages has every rank send to every other.
func (j *job) setMessages(t testing.TB, e *entry) [][][]byte {
	t.Helper()
	size := j.in / uint64(j.ranks)
	inputs := j.fill(t, kernel.Uint8, j.in)
	all := make([][][]byte, j.launches)
	for n := range j.launches {
		j.messagesOf(t, e, n, size)
		j.behind(t, n)
		out := make([][]byte, j.ranks)
		for r := range out {
			out[r] = make([]byte, j.out)
			for p := range j.ranks {
				part := out[r][uint64(p)*size : uint64(p+1)*size]
				switch {
				case p != r:
					copy(part, inputs[n][p][uint64(r)*size:uint64(r+1)*size])
				case j.caller == callerBetween && n > 0: // no rank sends it, and the caller has spoiled it
					copy(part, bytes.Repeat([]byte{spoiled}, len(part)))
				}
			}
		}
		all[n] = out
	}
	return all
}

func (j *job) messagesOf(t testing.TB, e *entry, n int, size uint64) {
	t.Helper()
	for r := range j.ranks {
		list := j.messages(r, size)
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
