package kernelargs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The host and the kernels cut messages alike.
func TestMessagesAreCutAlike(t *testing.T) {
	var source strings.Builder
	source.WriteString("#include \"line_pipes.h\"\n#include <stdio.h>\nusing namespace mscclpp::collectives;\n" +
		"void cut(uint64_t bytes, uint32_t lanes, uint32_t groups) {\n  const Cut c = cut_message(bytes, lanes, groups);\n" +
		"  printf(\"%llu %u\\n\", (unsigned long long)c.chunks, (c.payload + kPiece) / kGroupBytes);\n}\nint main() {\n")
	var want []string
	for _, lanes := range []uint32{1, 2, 64} {
		for _, groups := range []uint32{1, 2, 8} {
			p := &LinePipes{Lanes: lanes, Groups: groups}
			for _, bytes := range []uint64{0, 1, 1904, 1905, 3808, 15344, 15345, 64 << 10, 256<<10 + 1, 1 << 20, 64 << 20, 5<<30 + 17} {
				chunks, each := p.Cut(bytes)
				if each == 0 || each > uint64(groups) || chunks*(each*groupBytes-piece) < bytes || chunks > 1 && (chunks-1)*(each*groupBytes-piece) >= bytes {
					t.Errorf("%d bytes over %d lanes: %d chunks of %d groups, of which %d fit into a slot", bytes, lanes, chunks, each, groups)
				}
				fmt.Fprintf(&source, "  cut(%du, %d, %d);\n", bytes, lanes, groups)
				want = append(want, fmt.Sprint(chunks, each))
			}
		}
	}
	source.WriteString("}\n")
	dir := t.TempDir()
	file, program := filepath.Join(dir, "cut.cc"), filepath.Join(dir, "cut")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(source.String(), "u, ", "ull, ")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("g++", "-std=c++17", "-I../../../framework/kernel/include", "-I../../kernels", file, "-o", program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSpace(string(out)), "\n"); !slices.Equal(got, want) {
		t.Errorf("kernels cut into\n%v\nthe host into\n%v", got, want)
	}
}

// Few blocks for what one lane carries, two for each lane beyond, and a warp for each
// group of lines that is under way at once.
func TestShapesOfMessages(t *testing.T) {
	p := &LinePipes{Lanes: 64, Groups: 8}
	for _, x := range []struct {
		bytes               []uint64
		active, grid, block uint32
	}{
		{[]uint64{0}, 1, 2, 32},
		{[]uint64{1 << 10, 1 << 10}, 1, 2, 32},
		{[]uint64{64 << 10}, 35, 70, 32},
		{[]uint64{256 << 10}, 46, 92, 96},
		{[]uint64{1, 1 << 20}, 64, 128, 320},
		{[]uint64{1 << 30}, 64, 128, 512},
	} {
		var list []Transfer
		for _, b := range x.bytes {
			list = append(list, Transfer{Bytes: b})
		}
		if active, grid, block := p.Shape(list); active != x.active || grid != x.grid || block != x.block {
			t.Errorf("%v bytes: %d lanes, %d x %d: expected %d lanes, %d x %d", x.bytes, active, grid, block, x.active, x.grid, x.block)
		}
	}
}

// Scratch has room for pipes of lines with more lanes for few ranks than for many, and
// they lie behind everything else.
func TestPipesOfLines(t *testing.T) {
	for _, x := range []struct {
		scratch       uint64
		ranks         int
		lanes, groups uint32
	}{
		{256 << 20, 2, 64, 8}, {256 << 20, 4, 64, 4}, {256 << 20, 8, 64, 2}, {256 << 20, 16, 64, 1}, {256 << 20, 72, 16, 1},
	} {
		g, err := Divide(x.scratch, x.ranks, 32, LineRoom)
		if err != nil {
			t.Fatal(err)
		}
		if g.LineLanes != x.lanes || g.LineGroups != x.groups {
			t.Errorf("%d ranks: %d lanes of %d groups, expected %d of %d", x.ranks, g.LineLanes, g.LineGroups, x.lanes, x.groups)
		}
		need := uint64(g.LineLanes) * uint64(x.ranks) * LineSlots * uint64(g.LineGroups) * 16 * LineRoom
		pipes := uint64(g.Lanes) * uint64(x.ranks-1) * PipeSlots * g.PipeSlot
		if g.LinePipes < g.Pipes+pipes || g.LinePipes%DeviceLine != 0 || g.LinePipes+need > g.Total || g.Total > x.scratch {
			t.Errorf("%d ranks: pipes of lines at %d, %d bytes: %+v", x.ranks, g.LinePipes, need, g)
		}
	}
	if g, err := Divide(32<<20, 2, 1, 0); err != nil || g.LinePipes != 0 || g.LineLanes != 0 {
		t.Errorf("on the host: %+v, %v: expected none", g, err)
	}
}
