package interpret_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// text is an image with one kernel, "k", whose parameter is an address, which is in %rd1.
func text(body string) []byte {
	return []byte(".version 8.2\n.target sm_90\n.address_size 64\n.shared .align 8 .b8 room[256];\n.visible .entry k(\n.param .u64 p\n)\n{\n" +
		".reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .f32 %f<8>;\n.reg .b64 %rd<16>;\nld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n" +
		"mul.wide.u32 %rd2, %r1, 4;\n" + body + "\nret;\n}\n")
}

const (
	memory = 1 << 44
	window = 1 << 45
	bytes  = 4096
)

// execute runs a kernel of some ranks, each of two blocks of 64 threads. All have the same address as parameter: of memory of
// rank 0, or of the window over that of two.
func execute(t *testing.T, s *interpret.Session, ranks int, body string, address uint64, seeds uint64) error {
	t.Helper()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Image("image", text(body)); err != nil {
		return err
	}
	do(s.Reset())
	copies := []uint64{memory, memory + 1<<32}
	for r, c := range copies {
		do(s.Memory(r, fmt.Sprintf("memory-of-rank-%d", r), c, bytes))
	}
	do(s.Window("window", window, bytes, copies))
	do(s.Save())
	for r := range ranks {
		var p [8]byte
		for i := range p {
			p[i] = byte(address >> (8 * i))
		}
		do(s.Launch(&interpret.Launch{Image: "image", Entry: "k", Rank: r, Grid: 2, Block: 64, Arguments: p[:]}))
	}
	_, err := s.Run(1, seeds, true, 1e6)
	return err
}

// Anything that hardware leaves undefined is an error that names the place and the reason.
func TestWhatHardwareLeavesUndefinedIsAnError(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		name, body string
		address    uint64
		want       string
	}{
		{"unknown opcode", "frob.u32 %r3, %r1;", memory, "image:17: unknown instruction 'frob.u32'"},
		{"unknown modifier", "ld.global.ca.u32 %r3, [%rd1];", memory, "unknown instruction 'ld.global.ca.u32'"},
		{"modifiers in another order", "ld.global.relaxed.sys.u32 %r3, [%rd1];", memory, "unknown instruction"},
		{"unknown register", "mov.u32 %r77, %r1;", memory, "unknown operand '%r77'"},
		{"multimem of a type that it does not have", "multimem.ld_reduce.relaxed.sys.global.add.s64 %rd3, [%rd1];", window, "unknown instruction"},
		{"a register that was never set, as address", "ld.global.u32 %r3, [%rd9];", memory, "the address was never set"},
		{"a register that was never set, in a branch", "setp.eq.s32 %p1, %r9, 0;\n@%p1 bra L;\nL:", memory, "the predicate was never set"},
		{"a register that was never set, stored", "add.s32 %r3, %r9, %r1;\nst.global.u32 [%rd1], %r3;", memory, "what is stored was never set"},
		{"beyond the end", "st.relaxed.sys.global.u32 [%rd1+4096], %r1;", memory, "no memory there"},
		{"half beyond the end", "ld.global.u64 %rd3, [%rd1+4092];", memory, "misaligned"},
		{"misaligned", "ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%rd1+8];", memory, "misaligned: 16 bytes"},
		{"beyond the parameters", "ld.param.u64 %rd3, [p+8];", memory, "outside of the parameters"},
		{"beyond shared memory", "mov.u64 %rd3, room;\nld.shared.u32 %r3, [%rd3+256];", memory, "outside of shared memory"},
		{"global memory as shared", "ld.shared.u32 %r3, [%rd1];", memory, "outside of shared memory"},
		{"shared memory as global", "mov.u64 %rd3, room;\nld.global.u32 %r3, [%rd3];", memory, "shared memory as global"},
		{"plain load from a window", "ld.global.u32 %r3, [%rd1];", window, "a plain access to a multicast window"},
		{"plain store to a window", "st.global.u32 [%rd1], %r1;", window, "a plain access to a multicast window"},
		{"atomic on a window", "atom.relaxed.gpu.global.add.u32 %r3, [%rd1], %r1;", window, "a plain access to a multicast window"},
		{"multimem on memory", "multimem.ld_reduce.relaxed.sys.global.add.u32 %r3, [%rd1];", memory, "no multicast window"},
		{"misaligned multimem", "multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1+4];", window, "misaligned: 16 bytes"},
		{"multimem beyond the window", "multimem.ld_reduce.relaxed.sys.global.add.u32 %r3, [%rd1+4096];", window, "no memory there"},
		{"threads leave a block in a barrier", "setp.eq.s32 %p1, %r1, 5;\n@%p1 bra L;\nbar.sync 0;\nL:", memory, "barrier"},
		{"a vote of less than a warp", "setp.eq.s32 %p1, %r1, 5;\n@%p1 bra L;\nvote.sync.all.pred %p2, %p1, -1;\nL:", memory, "deadlock"},
		{"no progress", "L:\nld.relaxed.sys.global.u32 %r3, [%rd1];\nsetp.eq.s32 %p1, %r3, 0;\n@%p1 bra L;", memory, "no progress"},
	} {
		err := execute(t, s, 2, c.body, c.address, 1)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", c.name, err, c.want)
		}
	}
}

// Weakened orders, each of which is a race, and the right ones, which are none.
func TestRaces(t *testing.T) {
	s := start(t)
	// Thread 0 of block 0 of each rank writes a word and tells thread 0 of block 1 of the same rank, which reads it.
	pass := func(signal, wait string) string {
		return "setp.ne.s32 %p1, %r1, 0;\n@%p1 bra END;\nsetp.ne.s32 %p2, %r2, 0;\n@%p2 bra READ;\nst.global.u32 [%rd1], 7;\n" + signal +
			"\nbra.uni END;\nREAD:\n" + wait + "\nsetp.eq.s32 %p3, %r3, 0;\n@%p3 bra READ;\nld.global.u32 %r4, [%rd1];\nEND:"
	}
	shared := func(between string) string {
		return "mov.u64 %rd3, room;\nadd.s64 %rd4, %rd3, %rd2;\nst.shared.u32 [%rd4], %r1;\n" + between + "\nld.shared.u32 %r3, [%rd3+128];"
	}
	const passes = 9 // the first ones are of one rank
	for i, c := range []struct{ name, body, want string }{
		{"release and acquire", pass("st.release.gpu.global.u32 [%rd1+64], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1+64];"), ""},
		{"fences", pass("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%rd1+64], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd1+64];\nfence.acq_rel.gpu;"), ""},
		{"a chain of atomics", pass("atom.acq_rel.gpu.global.add.u32 %r5, [%rd1+64], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1+64];"), ""},
		{"relaxed signal", pass("st.relaxed.gpu.global.u32 [%rd1+64], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1+64];"), "no order: st.global.u32"},
		{"relaxed wait", pass("st.release.gpu.global.u32 [%rd1+64], 1;", "ld.relaxed.gpu.global.u32 %r3, [%rd1+64];"), "no order: st.global.u32"},
		{"plain wait", pass("st.release.gpu.global.u32 [%rd1+64], 1;", "ld.global.u32 %r3, [%rd1+64];"), "no order"},
		{"signal of too narrow a scope", pass("st.release.cta.global.u32 [%rd1+64], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1+64];"), "no order"},
		{"wait of too narrow a scope", pass("st.release.gpu.global.u32 [%rd1+64], 1;", "ld.acquire.cta.global.u32 %r3, [%rd1+64];"), "no order"},
		{"fence of too narrow a scope", pass("fence.acq_rel.cta;\nst.relaxed.gpu.global.u32 [%rd1+64], 1;", "ld.acquire.gpu.global.u32 %r3, [%rd1+64];"), "no order"},
		{"barrier", shared("bar.sync 0;"), ""},
		{"no barrier", shared(""), "no order: st.shared.u32"},
		{"bytes beside each other", "mul.wide.u32 %rd3, %r1, 1;\nmov.u64 %rd4, room;\nadd.s64 %rd5, %rd4, %rd3;\nst.shared.u8 [%rd5], %r1;", ""},
		{"two ranks write a word", "st.global.u32 [%rd1], 7;", "no order: st.global.u32"},
		{"two ranks write a word, strongly", "st.relaxed.sys.global.u32 [%rd1], 7;", ""},
		{"two ranks write a word, of the scope of a rank", "st.relaxed.gpu.global.u32 [%rd1], 7;", "no order: st.relaxed.gpu.global.u32"},
	} {
		ranks := 2
		if i < passes {
			ranks = 1
		}
		err := execute(t, s, ranks, c.body, memory, 20)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, expected %q", c.name, err, c.want)
		}
	}
}

// one has two threads of all do something, of any blocks and ranks: %r2 is 0 in the first and 1 in the second.
func one(body string) string {
	return "setp.ne.s32 %p7, %r1, 0;\n@%p7 bra END;\natom.relaxed.sys.global.add.u32 %r9, [%rd1+128], 1;\nsetp.ge.u32 %p6, %r9, 2;\n@%p6 bra END;\nmov.u32 %r2, %r9;\n" + body
}

// Data that one rank stores into the window and another reads by its own address needs alias fences on both sides.
func TestWindowsNeedAliasFencesOnBothSides(t *testing.T) {
	s := start(t)
	body := func(before, after string) string {
		return one("setp.ne.s32 %p2, %r2, 0;\n@%p2 bra READ;\nmov.u64 %rd5, " + fmt.Sprint(uint64(window)) + ";\nmultimem.st.relaxed.sys.global.u32 [%rd5], %r1;\n" + before +
			"\nmultimem.red.release.sys.global.add.u64 [%rd5+64], 1;\nbra.uni END;\nREAD:\nld.acquire.sys.global.u64 %rd6, [%rd1+64];\nsetp.eq.s64 %p3, %rd6, 0;\n@%p3 bra READ;\n" +
			after + "\nld.global.u32 %r4, [%rd1];\nEND:")
	}
	const fence = "fence.proxy.alias;"
	if err := execute(t, s, 2, body(fence, fence), memory, 20); err != nil {
		t.Errorf("both fences: %v", err)
	}
	for _, c := range [][2]string{{fence, ""}, {"", fence}, {"", ""}} {
		if err := execute(t, s, 2, body(c[0], c[1]), memory, 20); err == nil || !strings.Contains(err.Error(), "no alias fence on both sides: multimem.st") {
			t.Errorf("fences %q: %v, expected a report", c, err)
		}
	}
}

// The switch has no order of additions: its sums are exact, and rounded once.
func TestSumsOfTheSwitchAreExact(t *testing.T) {
	s := start(t)
	// 1e8 + 1 - 1e8 has no right answer in any order of f32, where there are three ranks; with two, 2^24 + 1 is a tie.
	err := execute(t, s, 2, one("setp.ne.s32 %p2, %r2, 0;\n@%p2 bra END;\nst.relaxed.sys.global.u32 [%rd1], 0x4b800000;\nmov.u64 %rd4, "+fmt.Sprint(uint64(memory+1<<32))+
		";\nst.relaxed.sys.global.u32 [%rd4], 0x3fc00000;\nmov.u64 %rd5, "+fmt.Sprint(uint64(window))+";\nmultimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%rd5];\n"+
		"fence.proxy.alias;\nst.relaxed.sys.global.u32 [%rd1+256], %f1;\nEND:"), memory, 1)
	if err != nil && !strings.Contains(err.Error(), "alias") {
		t.Fatal(err)
	}
	got, err := s.Read(memory+256, 4)
	if err != nil {
		t.Fatal(err)
	}
	if want := "\x01\x00\x80\x4b"; string(got) != want { // 2^24 + 1.5 is nearer to 2^24 + 2
		t.Errorf("%x, expected %x", got, want)
	}
}
