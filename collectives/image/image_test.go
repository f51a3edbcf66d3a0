package image_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

const most = 9 << 20 // bytes of all files: they are in version control and in programs

var (
	archs = []string{"sm_80", "sm_90", "gfx90a", "gfx942"}
	types = []string{"f32", "f16", "bf16", "f64", "i32", "u8", "e4m3"}
	rare  = []string{"i8", "u32", "i64", "u64", "e5m2", "e4m3b15"} // have few kernels
	// Types that kernels over a window have, in images of their own.
	switched = []string{"f32", "f16", "bf16", "f64", "i32", "u32", "i64", "u64"}
)

func open(t *testing.T) *deviceimage.Set {
	t.Helper()
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// parts are the families for NVIDIA, by what they are made of, in the order of it.
var parts = map[string][]string{
	"reduce_family.h": {"allreduce", "sums", "reducescatter", "rooted"},
	"move_family.h":   {"allgather", "alltoall", "broadcast", "transfers", "signals"},
}

// overWindows are the families of kernels over the window of a switch, which is on sm_90.
var overWindows = map[string]string{"switch": "switch_family.h", "switchmove": "switch_move_family.h"}

// Packets without a flag are for types that have a NaN to spare, on sm_90.
var lamport = []string{"f32", "f16", "bf16", "f64", "e4m3", "e5m2"}

// expected lists the images that there have to be.
func expected() []string {
	var want []string
	for _, arch := range archs {
		typed, untyped := []string{"reduce"}, []string{"move"}
		if strings.HasPrefix(arch, "sm_") {
			typed, untyped = parts["reduce_family.h"], parts["move_family.h"]
		}
		if arch != "sm_90" { // where the code would be that of sm_80
			untyped = append(slices.Clone(untyped), "exchange") // has arguments of its own
		}
		for _, family := range untyped {
			want = append(want, family+"-"+arch)
		}
		for _, family := range typed {
			for _, typ := range slices.Concat(types, rare) {
				want = append(want, family+"-"+typ+"-"+arch)
			}
		}
	}
	want = append(want, "switchmove-sm_90")
	for _, typ := range switched {
		want = append(want, "switch-"+typ+"-sm_90")
	}
	for _, typ := range lamport {
		want = append(want, "lamport-"+typ+"-sm_90")
	}
	slices.Sort(want)
	return want
}

func TestEveryArchitectureAndType(t *testing.T) {
	want, got := expected(), []string{}
	arguments, err := os.ReadFile("../kernels/args.h")
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile("../kernels/exchange_args.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range open(t).Infos() {
		got = append(got, info.ID)
		layout := kernel.Layout(string(arguments))
		if info.Family == "exchange" {
			layout = kernel.Layout(string(arguments), string(more))
		}
		if info.Layout != layout {
			t.Errorf("%s: for arguments of layout %q, expected %q: build the images anew", info.ID, info.Layout, layout)
		}
		family := info.Family
		if info.Type != "" {
			family += "-" + info.Type
		}
		if family+"-"+info.Arch != info.ID {
			t.Errorf("%s: family %q, type %q, arch %q", info.ID, info.Family, info.Type, info.Arch)
		}
		if info.ABI != kernel.ABI {
			t.Errorf("%s: ABI %d, expected %d", info.ID, info.ABI, kernel.ABI)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("images %q, expected %q", got, want)
	}
}

// The manifest's symbols are those that the sources define for GPUs, and the image
// itself has them.
func TestSymbols(t *testing.T) {
	set := open(t)
	sources := map[string][]string{"exchange": {"mscclpp_steps_exchange", "mscclpp_steps_sendrecv"}}
	for header, names := range parts {
		all := map[string][]string{"reduce_family.h": {"reduce"}, "move_family.h": {"move"}}[header][0]
		for _, name := range names {
			sources[name] = kernels(t, header, strings.ToUpper(name))
			sources[all] = append(sources[all], sources[name]...)
		}
		slices.Sort(sources[all])
	}
	for family, header := range overWindows {
		sources[family] = allKernels(t, header)
	}
	sources["lamport"] = allKernels(t, "lamport_family.h")
	for _, info := range set.Infos() {
		want := slices.Clone(sources[info.Family])
		if info.Family == "switch" && (info.Type == "f32" || info.Type == "f64") { // the switch has no minimum of them
			want = slices.DeleteFunc(want, func(s string) bool { return strings.HasSuffix(s, "_minmax") })
		}
		if info.Family == "lamport" && info.Type != "f32" && info.Type != "f16" && info.Type != "bf16" {
			want = slices.DeleteFunc(want, func(s string) bool { return s != "mscclpp_allreduce_oneshot_lamport" })
		}
		if slices.Contains(rare, info.Type) && info.Family != "lamport" && overWindows[info.Family] == "" {
			want = slices.DeleteFunc(want, func(s string) bool { return !slices.Contains(few, s) })
		}
		if strings.HasPrefix(info.Arch, "gfx") && info.Family == "reduce" { // they spill there, or nobody has measured them
			want = slices.DeleteFunc(want, func(s string) bool {
				return strings.HasSuffix(s, "_stream_ll128") || strings.HasSuffix(s, "_chain_ll128") || slices.Contains(long, s)
			})
			want = append(want, pushed...)
			slices.Sort(want)
		}
		if got := set.Symbols(info.ID); !slices.Equal(got, want) {
			t.Errorf("%s: symbols %q, expected %q", info.ID, got, want)
		}
		abi, entries, err := parse(set, info)
		if err != nil {
			t.Errorf("%s: %v", info.ID, err)
			continue
		}
		if abi != kernel.ABI {
			t.Errorf("%s: built for ABI %d, expected %d", info.ID, abi, kernel.ABI)
		}
		if !slices.Equal(entries, want) {
			t.Errorf("%s: the image has %q, expected %q", info.ID, entries, want)
		}
	}
}

func TestSizeOfAllImages(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > most {
		t.Errorf("%d bytes, expected at most %d: compile fewer types", total, most)
	}
}

// few are the kernels of rare types: what every call can be served with.
var few = []string{
	"mscclpp_allreduce_oneshot_ll8", "mscclpp_allreduce_twophase_chunk", "mscclpp_allreduce_zerocopy",
	"mscclpp_reduce_chunk", "mscclpp_reduce_direct_ll8", "mscclpp_reduce_zerocopy",
	"mscclpp_reducescatter_chunk", "mscclpp_reducescatter_direct_ll8", "mscclpp_reducescatter_zerocopy",
	"mscclpp_steps_sum",
}

// long are those that are for NVIDIA alone, beside messages in pieces.
var long = []string{"mscclpp_reduce_chain", "mscclpp_reduce_fetch", "mscclpp_reduce_shares", "mscclpp_reduce_twoshot_ll128"}

// pushed are those that are for AMD alone.
var pushed = []string{"mscclpp_allreduce_shares", "mscclpp_reducescatter_shares"}

var kernelMacro = regexp.MustCompile(`(?m)^MSCCLPP_KERNEL\((\w+),`)

// kernels lists what a part of a family defines.
func kernels(t *testing.T, header, part string) []string {
	t.Helper()
	text, err := os.ReadFile("../kernels/" + header)
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := bytes.Cut(text, []byte("#if MSCCLPP_HAS_PART("+part+")\n"))
	if !found {
		t.Fatalf("%s: no part %s", header, part)
	}
	text, _, _ = bytes.Cut(text, []byte("\n\n"))
	var out []string
	for _, m := range kernelMacro.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) == 0 {
		t.Fatalf("%s: no kernels in part %s", header, part)
	}
	slices.Sort(out)
	return out
}

// allKernels lists what a family without parts defines.
func allKernels(t *testing.T, header string) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../kernels/" + header)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range kernelMacro.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Nothing stands outside of the parts but what is for CPUs alone.
func TestPartsAreAll(t *testing.T) {
	for header, names := range parts {
		text, err := os.ReadFile("../kernels/" + header)
		if err != nil {
			t.Fatal(err)
		}
		text, _, found := bytes.Cut(text, []byte("#if MSCCLPP_TARGET_CPU"))
		if !found {
			t.Fatalf("%s: no part for the CPU", header)
		}
		sum := 0
		for _, name := range names {
			sum += len(kernels(t, header, strings.ToUpper(name)))
		}
		if all := len(kernelMacro.FindAll(text, -1)); all != sum {
			t.Errorf("%s: %d kernels, %d of them in parts", header, all, sum)
		}
	}
}

// ptx returns the images for NVIDIA, by their names.
func ptx(t *testing.T) map[string]string {
	t.Helper()
	set, out := open(t), map[string]string{}
	for _, info := range set.Infos() {
		if !strings.HasPrefix(info.Arch, "sm_") {
			continue
		}
		data, err := set.Read(info.ID)
		if err != nil {
			t.Fatal(err)
		}
		out[info.ID] = string(data)
	}
	return out
}

// A job that calls one collective compiles little: what NVIDIA's driver takes a second
// for is about 8,000 instructions. Reduce has more ways for long messages until a measurement says which of them are slower:
// those then leave the part.
func TestPartsAreSmall(t *testing.T) {
	for id, text := range ptx(t) {
		most := 26_700
		if strings.HasPrefix(id, "rooted-") {
			most = 32_400
		}
		if n := len(instruction.FindAllString(text, -1)); n > most {
			t.Errorf("%s: %d instructions, expected at most %d: cut the part in two", id, n, most)
		}
	}
}

// Only averages divide. GPUs divide zeros, infinities and NaN several times slower than other
// numbers, so a kernel that divides ahead of the question of what it computes makes sums of
// zeros slow.
func TestQuotientsAreNotDropped(t *testing.T) {
	seen := 0
	for id, text := range ptx(t) {
		for _, block := range boundary.Split(text, -1) { // instructions without a branch or label
			quotients := map[string]bool{}
			for line := range strings.Lines(block) {
				if m := division.FindStringSubmatch(line); m != nil {
					quotients[m[1]] = true
					seen++
				}
				if m := selection.FindStringSubmatch(line); m != nil && (quotients[m[1]] || quotients[m[2]]) {
					t.Errorf("%s: %s after a division: expected a branch around it", id, m[0])
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no division anywhere: expected those of averages")
	}
}

var (
	instruction = regexp.MustCompile(`(?m)^\t[a-z@]`)
	boundary    = regexp.MustCompile(`(?m)^\$\w+:.*$|^\t(@%p\w+ )?(bra|ret).*$`)
	division    = regexp.MustCompile(`\tdiv\.rn\.f\d+ *\t?(%f\w+),`)
	selection   = regexp.MustCompile(`selp\.f\d+ *\t?%f\w+, (%f\w+), (%f\w+),`)
)

var (
	ptxEntry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)
	ptxABI   = regexp.MustCompile(`\.u32 mscclpp_abi = (\d+);`)
	ptxConst = regexp.MustCompile(`(?m)^.*\.const \..*$`)
)

// parse reads an image itself: the ABI it was built for, and its entry points.
func parse(set *deviceimage.Set, info framework.ImageInfo) (abi uint32, entries []string, err error) {
	data, err := set.Read(info.ID)
	if err != nil {
		return 0, nil, err
	}
	if strings.HasPrefix(info.Arch, "sm_") {
		if !bytes.Contains(data, []byte(".target "+info.Arch+"\n")) {
			return 0, nil, fmt.Errorf("not for %s", info.Arch)
		}
		if c := ptxConst.Find(data); c != nil {
			return 0, nil, fmt.Errorf("it has a constant, which makes all launches slower: %s", c)
		}
		m := ptxABI.FindSubmatch(data)
		if m == nil {
			return 0, nil, fmt.Errorf("no mscclpp_abi")
		}
		if _, err := fmt.Sscan(string(m[1]), &abi); err != nil {
			return 0, nil, err
		}
		for _, m := range ptxEntry.FindAllSubmatch(data, -1) {
			entries = append(entries, string(m[1]))
		}
		slices.Sort(entries)
		return abi, entries, nil
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, nil, err
	}
	for _, s := range symbols {
		if name, ok := strings.CutSuffix(s.Name, ".kd"); ok {
			entries = append(entries, name)
		}
		if s.Name != "mscclpp_abi" {
			continue
		}
		section := f.Sections[s.Section]
		var word [4]byte
		if _, err := section.ReadAt(word[:], int64(s.Value-section.Addr)); err != nil {
			return 0, nil, fmt.Errorf("mscclpp_abi: %w", err)
		}
		abi = binary.LittleEndian.Uint32(word[:])
	}
	slices.Sort(entries)
	return abi, entries, nil
}
