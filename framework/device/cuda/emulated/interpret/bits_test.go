package interpret_test

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// Instructions that take signed parts of words: a word of the memory has what each one gives.
func TestSignedParts(t *testing.T) {
	s := start(t)
	cases := []struct {
		body string
		want uint64
	}{
		{"mov.b32 %r3, 0x00000f50;\nbfe.s32 %r4, %r3, 4, 4;\ncvt.s64.s32 %rd3, %r4;", 5},
		{"mov.b32 %r3, 0x00000f80;\nbfe.s32 %r4, %r3, 4, 4;\ncvt.s64.s32 %rd3, %r4;", ^uint64(7)},
		{"mov.b32 %r3, 2;\nbfe.s32 %r4, %r3, 1, 1;\ncvt.s64.s32 %rd3, %r4;", ^uint64(0)},
		{"mov.b32 %r3, 0xffffffff;\nbfe.s32 %r4, %r3, 1, 0;\ncvt.s64.s32 %rd3, %r4;", 0},
		{"mov.b32 %r3, 0x80000000;\nbfe.s32 %r4, %r3, 40, 3;\ncvt.s64.s32 %rd3, %r4;", ^uint64(0)},
		{"mov.b32 %r3, 0x80000000;\nbfe.s32 %r4, %r3, 28, 32;\ncvt.s64.s32 %rd3, %r4;", ^uint64(7)},
		{"mov.b64 %rd4, 0x8000000000;\nbfe.s64 %rd3, %rd4, 36, 4;", ^uint64(7)},
		{"mov.b32 %r3, 0xfffffffe;\nmul.wide.s32 %rd3, %r3, 8;", ^uint64(15)},
	}
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
