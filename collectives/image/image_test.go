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
	"github.com/mscclpp-go/mscclpp/framework/device"
	deviceimage "github.com/mscclpp-go/mscclpp/framework/device/image"
)

const most = 8 << 20 // bytes of all files: they are in version control and in programs

var (
	archs = []string{"sm_80", "sm_90", "gfx90a", "gfx942"}
	types = []string{"f32", "f16", "bf16", "f64", "i32", "u8", "e4m3"}
	rare  = []string{"i8", "u32", "i64", "u64", "e5m2", "e4m3b15"} // have few kernels, and none for AMD
	// Types that multicast memory of NVIDIA's sm_90 cannot sum.
	unswitched = []string{"f64", "u8", "e4m3"}
)

func open(t *testing.T) *deviceimage.Set {
	t.Helper()
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestEveryArchitectureAndType(t *testing.T) {
	var want, got []string
	for _, arch := range archs {
		want = append(want, "move-"+arch)
		for _, typ := range types {
			want = append(want, "reduce-"+typ+"-"+arch)
		}
		for _, typ := range rare {
			if strings.HasPrefix(arch, "sm_") {
				want = append(want, "reduce-"+typ+"-"+arch)
			}
		}
	}
	arguments, err := os.ReadFile("../kernels/args.h")
	if err != nil {
		t.Fatal(err)
	}
	layout := device.Layout(string(arguments))
	for _, info := range open(t).Infos() {
		got = append(got, info.ID)
		if info.Layout != layout {
			t.Errorf("%s: for arguments of layout %q, expected %q: build the images anew", info.ID, info.Layout, layout)
		}
		family := info.Family
		if info.Type != "" {
			family += "-" + info.Type
		}
		if family+"-"+info.Arch != info.ID || (info.Family == image.Reduce) != (info.Type != "") {
			t.Errorf("%s: family %q, type %q, arch %q", info.ID, info.Family, info.Type, info.Arch)
		}
		if info.ABI != device.ABI {
			t.Errorf("%s: ABI %d, expected %d", info.ID, info.ABI, device.ABI)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("images %q, expected %q", got, want)
	}
}

// The manifest's symbols are those that the sources define for GPUs, and the image
// itself has them.
func TestSymbols(t *testing.T) {
	set := open(t)
	sources := map[string][]string{image.Reduce: kernels(t, "reduce_family.h"), image.Move: kernels(t, "move_family.h")}
	for _, info := range set.Infos() {
		want := slices.Clone(sources[info.Family])
		if slices.Contains(rare, info.Type) {
			want = few
		}
		if info.Arch == "sm_90" && slices.Contains(unswitched, info.Type) {
			want = slices.DeleteFunc(want, func(s string) bool { return s == "mscclpp_allreduce_switch" })
		}
		if strings.HasPrefix(info.Arch, "gfx") && info.Family == image.Reduce { // they spill there
			want = slices.DeleteFunc(want, func(s string) bool { return strings.HasSuffix(s, "_stream_ll128") })
		}
		if got := set.Symbols(info.ID); !slices.Equal(got, want) {
			t.Errorf("%s: symbols %q, expected %q", info.ID, got, want)
		}
		abi, entries, err := parse(set, info)
		if err != nil {
			t.Errorf("%s: %v", info.ID, err)
			continue
		}
		if abi != device.ABI {
			t.Errorf("%s: built for ABI %d, expected %d", info.ID, abi, device.ABI)
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

var kernel = regexp.MustCompile(`(?m)^MSCCLPP_KERNEL\((\w+),`)

// kernels lists what a family defines apart from its part for the CPU.
func kernels(t *testing.T, header string) []string {
	t.Helper()
	text, err := os.ReadFile("../kernels/" + header)
	if err != nil {
		t.Fatal(err)
	}
	text, _, found := bytes.Cut(text, []byte("#if MSCCLPP_TARGET_CPU"))
	if !found {
		t.Fatalf("%s: no part for the CPU", header)
	}
	var out []string
	for _, m := range kernel.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) == 0 {
		t.Fatalf("%s: no kernels", header)
	}
	slices.Sort(out)
	return out
}

var (
	ptxEntry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)
	ptxABI   = regexp.MustCompile(`\.u32 mscclpp_abi = (\d+);`)
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
