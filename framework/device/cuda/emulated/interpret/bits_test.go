package interpret_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// Instructions that take signed parts of words: a word of the memory has what each one gives.
func TestSignedParts(t *testing.T) {
	s := start(t)
	cases := []word{
		{"mov.b32 %r3, 0x00000f50;\nbfe.s32 %r4, %r3, 4, 4;\ncvt.s64.s32 %rd3, %r4;", 5},
		{"mov.b32 %r3, 0x00000f80;\nbfe.s32 %r4, %r3, 4, 4;\ncvt.s64.s32 %rd3, %r4;", ^uint64(7)},
		{"mov.b32 %r3, 2;\nbfe.s32 %r4, %r3, 1, 1;\ncvt.s64.s32 %rd3, %r4;", ^uint64(0)},
		{"mov.b32 %r3, 0xffffffff;\nbfe.s32 %r4, %r3, 1, 0;\ncvt.s64.s32 %rd3, %r4;", 0},
		{"mov.b32 %r3, 0x80000000;\nbfe.s32 %r4, %r3, 40, 3;\ncvt.s64.s32 %rd3, %r4;", ^uint64(0)},
		{"mov.b32 %r3, 0x80000000;\nbfe.s32 %r4, %r3, 28, 32;\ncvt.s64.s32 %rd3, %r4;", ^uint64(7)},
		{"mov.b64 %rd4, 0x8000000000;\nbfe.s64 %rd3, %rd4, 36, 4;", ^uint64(7)},
		{"mov.b32 %r3, 0xfffffffe;\nmul.wide.s32 %rd3, %r3, 8;", ^uint64(15)},
	}
	checkWords(t, s, cases)
}

// The smaller and the larger of two floats: a NaN gives way to a number, and zeros have an order.
func TestSmallerAndLargerFloats(t *testing.T) {
	const one, two, nan, other, zero, minus, made = 0x3f800000, 0x40000000, 0xffc00001, 0x7f800001, 0, 0x80000000, 0x7fffffff
	var cases []word
	for _, x := range []struct{ a, b, least, most uint64 }{
		{one, two, one, two}, {two, one, one, two}, {nan, one, one, one}, {two, other, two, two}, {nan, other, made, made}, {zero, minus, minus, zero}, {minus, zero, minus, zero},
		{0xbf800000, 0xc0000000, 0xc0000000, 0xbf800000},
	} {
		for op, want := range map[string]uint64{"min": x.least, "max": x.most} {
			cases = append(cases, word{fmt.Sprintf("mov.b32 %%f1, %#x;\nmov.b32 %%f2, %#x;\n%s.f32 %%f3, %%f1, %%f2;\nmov.b32 %%r3, %%f3;\ncvt.u64.u32 %%rd3, %%r3;", x.a, x.b, op), want})
		}
	}
	checkWords(t, start(t), cases)
}

// word is the value of a register after some instructions.
type word struct {
	body string
	want uint64
}

func checkWords(t *testing.T, s *interpret.Session, cases []word) {
	t.Helper()
	var body string
	for i, c := range cases {
		body += fmt.Sprintf("%s\nst.relaxed.sys.global.u64 [%%rd1+%d], %%rd3;\n", c.body, 8*i)
	}
	if err := execute(t, s, 1, body, memory, 1); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(memory, 8*len(cases))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		if v := binary.LittleEndian.Uint64(got[8*i:]); v != c.want {
			t.Errorf("%q gives %#x, expected %#x", c.body, v, c.want)
		}
	}
}
