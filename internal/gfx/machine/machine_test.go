package machine_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// program is a kernel of some instructions, which ends with s_endpgm. Its argument is the address of a buffer.
func program(words ...uint32) *machine.Program {
	words = append(words, 0xbf810000)
	var code []byte
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	k := object.Kernel{
		Name: "k", Args: []object.Arg{{Size: 8, Kind: "by_value"}}, ArgsBytes: 8, Threads: 1024, SGPRs: 16, VGPRs: 16, Group: 64, Wave: 64,
		UserSGPRs: 2, BlockX: true,
	}
	return machine.NewProgram(&object.Object{Arch: "gfx942", Image: code, Text: object.Range{End: uint64(len(code))}, Kernels: []object.Kernel{k}})
}

// run runs a kernel of one block of 64 threads over a buffer.
func run(t *testing.T, o machine.Options, p *machine.Program, buffer []uint32) error {
	t.Helper()
	var pin runtime.Pinner // the kernel has its address: it may not move, as a stack does
	pin.Pin(unsafe.SliceData(buffer))
	defer pin.Unpin()
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buffer))))
	regions := &memory.Regions{}
	if err := regions.Add(memory.Region{Start: start, End: start + 4*uint64(len(buffer))}); err != nil {
		t.Fatal(err)
	}
	m := machine.New(memory.Plain{Regions: regions}, o)
	return m.Run(&machine.Launch{Program: p, Kernel: "k", Grid: 1, Block: 64, Args: binary.LittleEndian.AppendUint64(nil, start)})
}

const (
	loadArgs   = 0xc0060100 // s_load_dwordx2 s[4:5], s[0:1], 0x0
	wait       = 0xbf8c0000 // s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)
	shift2     = 0x24020082 // v_lshlrev_b32 v1, 2, v0
	store      = 0xdc708000 // global_store_dword v1, v2, s[4:5]
	storeWords = 0x00040201
	load       = 0xdc508000 // global_load_dword v3, v1, s[4:5]
	loadWords  = 0x03040001
)

func TestStore(t *testing.T) {
	buffer := make([]uint32, 64)
	p := program(loadArgs, 0, wait, shift2, 0x68040081 /* v_add_u32 v2, 1, v0 */, store, storeWords)
	for seed := range uint64(20) {
		clear(buffer)
		if err := run(t, machine.Options{Seed: seed, Weak: seed%2 == 1}, p, buffer); err != nil {
			t.Fatal(err)
		}
		for l, v := range buffer {
			if v != uint32(l+1) {
				t.Fatalf("lane %d stored %d: expected %d", l, v, l+1)
			}
		}
	}
}

// Halves of registers are compared as numbers without a sign; what is above them does not count.
func TestCompareHalves(t *testing.T) {
	const keep = 0x00040080 // v_cndmask_b32 v2, 0, v0, vcc
	for name, c := range map[string]struct {
		words []uint32
		want  func(l uint32) uint32
	}{
		"32 and the lane": {[]uint32{0x7d5c00a0 /* v_cmp_ge_u16 vcc, 32, v0 */}, func(l uint32) uint32 {
			if l <= 32 {
				return l
			}
			return 0
		}},
		"0 and the lane above the half": {[]uint32{0x24060090 /* v_lshlrev_b32 v3, 16, v0 */, 0x7d5c0680 /* v_cmp_ge_u16 vcc, 0, v3 */}, func(l uint32) uint32 { return l }},
		"the lane and -1":               {[]uint32{0x7e0602c1 /* v_mov_b32 v3, -1 */, 0x7d5c0700 /* v_cmp_ge_u16 vcc, v0, v3 */}, func(uint32) uint32 { return 0 }},
	} {
		buffer := make([]uint32, 64)
		words := append([]uint32{loadArgs, 0, wait, shift2}, c.words...)
		if err := run(t, machine.Options{}, program(append(words, keep, store, storeWords)...), buffer); err != nil {
			t.Fatal(err)
		}
		for l, v := range buffer {
			if want := c.want(uint32(l)); v != want {
				t.Errorf("%s: lane %d has %d: expected %d", name, l, v, want)
			}
		}
	}
}

// Fields of scalars are cut out by offset and width; the largest of three is found without a sign; floats are subtracted in the order of operands.
func TestFieldsAndLargest(t *testing.T) {
	for name, c := range map[string]struct {
		words []uint32
		want  func(l uint32) uint32
	}{
		"8 bits from 4 on of -1":   {[]uint32{0x9286ffc1, 0x00080004 /* s_bfe_u32 s6, -1, 0x80004 */, 0x7e040206 /* v_mov_b32 v2, s6 */}, func(uint32) uint32 { return 0xff }},
		"no bits of -1":            {[]uint32{0x9286ffc1, 0x00000004, 0x7e040206}, func(uint32) uint32 { return 0 }},
		"32 bits from 28 on of -1": {[]uint32{0x9286ffc1, 0x0020001c, 0x7e040206}, func(uint32) uint32 { return 0xf }},
		"of 32, the lane and 7":    {[]uint32{0xd1d50002, 0x021e00a0 /* v_max3_u32 v2, 32, v0, 7 */}, func(l uint32) uint32 { return max(32, l) }},
		"1 less the lane":          {[]uint32{0x7e040d00 /* v_cvt_f32_u32 v2, v0 */, 0x040404f2 /* v_sub_f32 v2, 1.0, v2 */}, func(l uint32) uint32 { return math.Float32bits(1 - float32(l)) }},
		"lane ^ 5, and 7 more":     {[]uint32{0xd1f30002, 0x021d0b00 /* v_xad_u32 v2, v0, 5, 7 */}, func(l uint32) uint32 { return l ^ 5 + 7 }},
		"the lane and 3.0, larger": {[]uint32{0x7e040d00, 0x160404ff, 0x40400000 /* v_max_f32 v2, 3.0, v2 */}, func(l uint32) uint32 { return math.Float32bits(max(3, float32(l))) }},
		"of no number and -1.0":    {[]uint32{0x7e0402f3 /* v_mov_b32 v2, -1.0 */, 0x160404ff, 0x7fc00000 /* v_max_f32 v2, NaN, v2 */}, func(uint32) uint32 { return math.Float32bits(-1) }},
		"of one that signals":      {[]uint32{0x7e0402f3, 0x160404ff, 0x7f800001}, func(uint32) uint32 { return 0x7fc00001 }},
		"of -0 and 0":              {[]uint32{0x7e040280 /* v_mov_b32 v2, 0 */, 0x160404ff, 0x80000000}, func(uint32) uint32 { return 0 }},
		"of the lane, -1 and 0":    {[]uint32{0xd1d50002, 0x02018300 /* v_max3_u32 v2, v0, -1, 0 */}, func(uint32) uint32 { return 0xffffffff }},
	} {
		buffer := make([]uint32, 64)
		words := append([]uint32{loadArgs, 0, wait, shift2}, c.words...)
		if err := run(t, machine.Options{}, program(append(words, store, storeWords)...), buffer); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for l, v := range buffer {
			if want := c.want(uint32(l)); v != want {
				t.Errorf("%s: lane %d has %#x: expected %#x", name, l, v, want)
			}
		}
	}
}

// Bytes and halves of what a block has written to its memory are read.
func TestPartsOfGroupMemory(t *testing.T) {
	buffer := make([]uint32, 64)
	p := program(loadArgs, 0, wait, shift2,
		0x68040081,             // v_add_u32 v2, 1, v0
		0xbefc00ff, 0x00010000, // s_mov_b32 m0, 0x10000
		0x7e0a0280,             // v_mov_b32 v5, 0
		0x24040490,             // v_lshlrev_b32 v2, 16, v2
		0x280404ff, 0x0000ffff, // v_or_b32 v2, 0xffff, v2
		0xd81a0000, 0x00000205, // ds_write_b32 v5, v2
		wait,
		0xd86c0000, 0x02000005, // ds_read_b32 v2, v5
		0xd8740001, 0x03000005, // ds_read_u8 v3, v5 offset:1
		0xd8780002, 0x04000005, // ds_read_u16 v4, v5 offset:2
		wait,
		0x68040702, // v_add_u32 v2, v2, v3
		0x68040902, // v_add_u32 v2, v2, v4
		store, storeWords)
	if err := run(t, machine.Options{Steps: 10000}, p, buffer); err != nil {
		t.Fatal(err)
	}
	const want = (64<<16 | 0xffff) + 0xff + 64 // the last lane is the one that remains
	for l, v := range buffer {
		if v != want {
			t.Fatalf("lane %d has %#x: expected %#x", l, v, want)
		}
	}
}

// Mistakes of kernels are reported, with their place.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		name  string
		p     *machine.Program
		words []string
	}{
		{"a scalar load that is not waited for", program(loadArgs, 0, shift2, store, storeWords), []string{"s[4:5] is used", "expected s_waitcnt"}},
		{"a vector load that is not waited for", program(loadArgs, 0, wait, shift2, load, loadWords, 0x7e040303 /* v_mov_b32 v2, v3 */), []string{"v3 is used", "v_mov_b32_e32 v2, v3"}},
		{"an address of nothing", program(loadArgs, 0, wait, 0x24020088 /* v_lshlrev_b32 v1, 8, v0 */, store, storeWords), []string{"lane 1", "no memory", "global_store_dword"}},
		{"an address that is not aligned", program(loadArgs, 0, wait, 0x7e020300 /* v_mov_b32 v1, v0 */, store, storeWords), []string{"lane 1", "not aligned"}},
		{"no instruction", program(0xffffffff), []string{"device 0, block 0, threads from 0", "ff ff ff ff"}},
		{"a loop without end", program(0xbf82ffff), []string{"and no end: 1 waves are left", "s_branch"}},
		{"group memory that is not there", program(0xd81a0000, 0x00000000, 0xd81a0040, 0x00000000), []string{"64 bytes"}},
	} {
		err := run(t, machine.Options{Steps: 10000}, c.p, make([]uint32, 64))
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v: expected %q", c.name, err, w)
			}
		}
	}
}

// Every operation that is decoded has something that executes it.
func TestComplete(t *testing.T) {
	for _, f := range isa.Forms {
		if !machine.Executes(f) {
			t.Errorf("%s, format %d, code %d: nothing executes it", f.Name, f.Format, f.Code)
		}
	}
}

// One rounding, where two would differ, and all numbers of 16 bits there and back.
func TestFloats(t *testing.T) {
	bits := func(f float32) uint64 { return uint64(math.Float32bits(f)) }
	for _, c := range []struct{ a, b, c, want float32 }{
		{1 + 0x1p-12, 1 + 0x1p-12, 0, 1 + 0x1p-11},
		{1 + 0x1p-12, 1 + 0x1p-12, 0x1p-60, 1 + 0x1p-11 + 0x1p-23},
		{1 + 0x1p-12, 1 + 0x1p-12, -0x1p-60, 1 + 0x1p-11},
		{3, 5, 7, 22},
		{0, 5, 0, 0},
	} {
		if got := machine.FMA(bits(c.a), bits(c.b), bits(c.c)); got != bits(c.want) {
			t.Errorf("%g * %g + %g: %g, expected %g", c.a, c.b, c.c, math.Float32frombits(uint32(got)), c.want)
		}
	}
	for h := range uint64(1 << 16) {
		if h>>10&0x1f == 0x1f && h&0x3ff != 0 {
			continue // no number
		}
		if got := machine.ToF16(machine.FromF16(h)); got != h {
			t.Fatalf("%#04x became %#04x", h, got)
		}
	}
	for _, c := range []struct {
		f    float32
		want uint64
	}{{65519, 0x7bff}, {65520, 0x7c00}, {1 + 0x1p-11, 0x3c00}, {1 + 0x1p-11 + 0x1p-20, 0x3c01}, {1 + 3*0x1p-11, 0x3c02}, {0x1p-25, 0}, {0x1.8p-25, 1}, {-2, 0xc000}} {
		if got := machine.ToF16(bits(c.f)); got != c.want {
			t.Errorf("%g became %#04x, expected %#04x", c.f, got, c.want)
		}
	}
}

// BenchmarkLanes measures how many instructions of lanes a second are interpreted.
func BenchmarkLanes(b *testing.B) {
	p := program(0xb0040000|2000 /* s_movk_i32 s4, 2000 */, 0x68040081, 0x7e060302, 0x24020082, 0x80848104 /* s_sub_u32 s4, s4, 1 */, 0xbf078004 /* s_cmp_lg_u32 s4, 0 */, 0xbf85fffa /* s_cbranch_scc1 -6 */)
	regions := &memory.Regions{}
	for b.Loop() {
		m := machine.New(memory.Plain{Regions: regions}, machine.Options{})
		if err := m.Run(&machine.Launch{Program: p, Kernel: "k", Grid: 1, Block: 64, Args: make([]byte, 8)}); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(m.Lanes), "lanes/op")
	}
}
