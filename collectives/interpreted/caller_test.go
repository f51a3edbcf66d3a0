package interpreted_test

import (
	"encoding/binary"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// callerText is a kernel of the program that calls: behind each call, on its stream, it takes the output away, spoils it, and
// writes the input of the next call, which may lie in the output. So everything matters that a call owes to its caller: its last
// signals and barriers too. The next kernel may begin at once, and has to wait for it.
// Arguments: source, input, bytes of the input; output, result, bytes of the output.
const callerText = `.version 8.2
.target sm_90
.address_size 64
.visible .entry caller(
	.param .align 8 .b8 caller_param_0[48]
)
{
	.reg .pred %p<2>;
	.reg .b16 %rs<3>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<16>;
	ld.param.u64 %rd1, [caller_param_0];
	ld.param.u64 %rd2, [caller_param_0+8];
	ld.param.u64 %rd3, [caller_param_0+16];
	ld.param.u64 %rd4, [caller_param_0+24];
	ld.param.u64 %rd5, [caller_param_0+32];
	ld.param.u64 %rd6, [caller_param_0+40];
	mov.u32 %r1, %tid.x;
	cvt.u64.u32 %rd7, %r1;
	griddepcontrol.launch_dependents;
	mov.u64 %rd9, %rd7;
	mov.u16 %rs2, 238;
$L__outputs:
	setp.ge.u64 %p1, %rd9, %rd6;
	@%p1 bra $L__taken;
	add.s64 %rd10, %rd4, %rd9;
	add.s64 %rd11, %rd5, %rd9;
	ld.global.u8 %rs1, [%rd10];
	st.global.u8 [%rd11], %rs1;
	st.global.u8 [%rd10], %rs2;
	add.s64 %rd9, %rd9, 64;
	bra.uni $L__outputs;
$L__taken:
	bar.sync 0;
	mov.u64 %rd8, %rd7;
$L__inputs:
	setp.ge.u64 %p1, %rd8, %rd3;
	@%p1 bra $L__end;
	add.s64 %rd10, %rd1, %rd8;
	add.s64 %rd11, %rd2, %rd8;
	ld.global.u8 %rs1, [%rd10];
	st.global.u8 [%rd11], %rs1;
	add.s64 %rd8, %rd8, 64;
	bra.uni $L__inputs;
$L__end:
	ret;
}
`

const callerImage = "caller"

const spoiled = 238 // every byte of an output behind the caller

// When the caller's kernel runs.
const (
	callerNever   = iota
	callerAtEnd   // behind the last call: calls are back to back, and overlap
	callerBetween // behind every call
)

// behind enqueues the caller's kernel behind call n, on all ranks.
func (j *job) behind(t testing.TB, n int) {
	t.Helper()
	if j.caller == callerNever || j.caller == callerAtEnd && n+1 < j.launches {
		return
	}
	for r := range j.ranks {
		j.callerOf(t, r, callerArgs{
			source: at(atSource, r) + uint64(n)*j.in, input: at(atInput, r), in: j.in,
			output: j.output(r), result: at(atResult, r) + uint64(n)*j.out, out: j.out,
		})
	}
}

// usePipes has a rank store into the pipes of its neighbor behind a call whose slots lie there, as a call of messages would:
// that waits for no room, since by its counts the pipes are empty.
func (j *job) usePipes(t testing.TB, n int) {
	t.Helper()
	if j.chunk == 0 || j.caller == callerAtEnd && n+1 < j.launches {
		return
	}
	for r := range j.ranks {
		j.callerOf(t, r, callerArgs{output: at(atScratch, (r+1)%j.ranks) + j.geometry.Pipes, result: at(atSpare, r), out: j.pipeBytes()})
	}
}

// callerArgs are the arguments of the caller's kernel.
type callerArgs struct{ source, input, in, output, result, out uint64 }

func (j *job) callerOf(t testing.TB, rank int, a callerArgs) {
	t.Helper()
	var p []byte
	for _, word := range []uint64{a.source, a.input, a.in, a.output, a.result, a.out} {
		p = binary.LittleEndian.AppendUint64(p, word)
	}
	must(t, "caller", j.session.Launch(&interpret.Launch{Image: callerImage, Entry: "caller", Rank: rank, Grid: 1, Block: 64, Arguments: p}))
}

// fill writes the inputs of all ranks, of all calls: those of the first where they belong, the others where the caller's
// kernel takes them. Without it all calls have the same.
func (j *job) fill(t testing.TB, d kernel.DataType, bytes uint64) [][][]byte {
	t.Helper()
	inputs := make([][][]byte, j.launches)
	for n := range inputs {
		if n > 0 && j.caller != callerBetween {
			inputs[n] = inputs[0]
			continue
		}
		inputs[n] = make([][]byte, j.ranks)
		for r := range inputs[n] {
			p := make([]byte, bytes)
			inputs[n][r] = p
			collectivetest.Reference{}.Fill(p, d, j.op, uint64(7+n), r, 0)
			if bytes == 0 {
				continue
			}
			if n == 0 {
				must(t, "input", j.session.Write(at(atInput, r), p))
			} else {
				must(t, "source", j.session.Write(at(atSource, r)+uint64(n-1)*bytes, p))
			}
		}
	}
	return inputs
}

// expect has every schedule compare the outputs of all calls, or, without the caller's kernel, of the last.
func (j *job) expect(t testing.TB, out [][][]byte) {
	t.Helper()
	must(t, "save", j.session.Save())
	for n, ranks := range out {
		if j.caller != callerBetween && n+1 < len(out) {
			continue
		}
		for r, p := range ranks {
			to := j.output(r)
			if j.caller != callerNever {
				to = at(atResult, r) + uint64(n)*j.out
			}
			if len(p) > 0 {
				must(t, "expected", j.session.Write(to, p))
				must(t, "expect", j.session.Expect(to, len(p)))
			}
		}
	}
	must(t, "restore", j.session.Restore())
}
