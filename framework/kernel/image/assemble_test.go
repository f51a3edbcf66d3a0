package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode/cubintest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// assembleRig is a set of images with an assembler that is a script: it has an answer for
// each text and chip.
type assembleRig struct {
	t                           *testing.T
	images, answers, out, store string
	tool                        string
}

func newAssembleRig(t *testing.T, version string) *assembleRig {
	t.Helper()
	dir := t.TempDir()
	r := &assembleRig{t: t, images: filepath.Join(dir, "images"), answers: filepath.Join(dir, "answers"), out: filepath.Join(dir, "out"), store: filepath.Join(dir, "store"), tool: filepath.Join(dir, "ptxas")}
	for _, d := range []string{r.images, r.answers} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.write(r.tool, `#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 12.9, V`+version+`"; exit 0; fi
answer=`+r.answers+`/$(sha256sum image.ptx | cut -c1-64)${2#-arch=}
echo "$2" >>`+r.answers+`/asked
cat "$answer.text"
[ -e "$answer.code" ] && cp "$answer.code" image.cubin
`)
	if err := os.Chmod(r.tool, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *assembleRig) write(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// asked counts the texts that were given to the assembler.
func (r *assembleRig) asked() int {
	text, _ := os.ReadFile(filepath.Join(r.answers, "asked")) // none yet
	return strings.Count(string(text), "\n")
}

// image adds an image, with the assembler's answer for some chips.
func (r *assembleRig) image(m *Manifest, family, arch, symbol, used string, chips ...int) {
	r.t.Helper()
	text := []byte(".target " + arch + "\n.visible .entry " + symbol + "(\n.param .u64 p\n)\n{\n// " + arch + "\n}\n")
	s := sha256.Sum256(text)
	img := Image{ID: family + "-" + arch, Family: family, Arch: arch, File: family + "-" + arch + ".ptx.gz", Bytes: uint64(len(text)), SHA256: hex.EncodeToString(s[:]), Symbols: []string{symbol}}
	m.Images = append(m.Images, img)
	packed, err := zip(text)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(filepath.Join(r.images, img.File), string(packed))
	for _, chip := range chips {
		code, _ := cubintest.Object(text, chip)
		answer := filepath.Join(r.answers, fmt.Sprintf("%ssm_%d", img.SHA256, chip))
		r.write(answer+".code", string(code))
		r.write(answer+".text", fmt.Sprintf("ptxas info    : Compiling entry function '%s' for 'sm_%d'\nptxas info    : Function properties for %s\n%s\n", symbol, chip, symbol, used))
	}
	if err := m.write(r.images); err != nil {
		r.t.Fatal(err)
	}
}

const plainUse = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 40 registers, used 1 barriers"

func (r *assembleRig) assemble(change func(*Assembly)) ([]Assembled, error) {
	a := Assembly{Images: []string{r.images}, Chips: []string{"sm_80", "sm_90", "sm_120"}, Assembler: r.tool, Store: r.store, Out: filepath.Join(r.out, "mine"), Jobs: 2}
	if change != nil {
		change(&a)
	}
	return Assemble(r.t.Context(), a)
}

// Each chip gets the machine code of the image that its GPUs would load. Images that
// were assembled before are not assembled again, and give the same containers.
func TestAssemble(t *testing.T) {
	r := newAssembleRig(t, "12.9.86")
	m := &Manifest{Name: "set", ABI: kernel.ABI}
	r.image(m, "both", "sm_80", "k_both", plainUse, 80)
	r.image(m, "both", "sm_90", "k_both", plainUse, 90, 120)
	r.image(m, "old", "sm_80", "k_old", plainUse, 80, 90, 120)
	r.image(m, "left_out", "sm_80", "k_left", plainUse)
	except := func(a *Assembly) { a.Except = []string{"left_out"} }
	first, err := r.assemble(except)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for i, chip := range []string{"sm_80", "sm_90", "sm_120"} {
		d := first[i]
		data, err := os.ReadFile(d.File)
		if err != nil || d.Chip != chip || d.Images != 2 || d.Made != 2 || int64(len(data)) != d.Bytes {
			t.Errorf("%+v, %v: want 2 images for %s, both new", d, err, chip)
		}
		before[d.File] = string(data)
		major, minor := chipNumber(chip)/10, chipNumber(chip)%10
		library, err := machinecode.Open([]string{d.File}, major, minor)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range map[string][]string{"sm_80": {"both-sm_80", "old-sm_80"}}[chip] {
			if found, err := library.Find(m.find(id).SHA256); err != nil || found == nil || found.ID != "set/"+id || found.Chip != chip {
				t.Errorf("%s for %s: %+v, %v", id, chip, found, err)
			}
		}
	}
	asked := r.asked()
	second, err := r.assemble(except)
	if err != nil || r.asked() != asked || second[0].Made != 0 {
		t.Errorf("%v, %v: %d texts were assembled again", second, err, r.asked()-asked)
	}
	for file, text := range before {
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("%s is another one, %v", file, err)
		}
	}
	entries, err := os.ReadDir(r.store)
	if err != nil || len(entries) != 6 {
		t.Fatalf("%d files in the store, %v", len(entries), err)
	}
	for _, e := range entries { // of no use any more
		r.write(filepath.Join(r.store, e.Name()), "damaged")
	}
	if third, err := r.assemble(except); err != nil || third[1].Made != 2 {
		t.Errorf("%+v, %v: want what is damaged to be made again", third, err)
	}
}

// Another assembler, or another text, is asked again.
func TestAssembleAnew(t *testing.T) {
	r := newAssembleRig(t, "12.9.86")
	m := &Manifest{Name: "set", ABI: kernel.ABI}
	r.image(m, "k", "sm_80", "k", plainUse, 80, 90, 120)
	if _, err := r.assemble(nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.tool)
	if err != nil {
		t.Fatal(err)
	}
	r.write(r.tool, strings.ReplaceAll(string(text), "12.9.86", "12.9.87"))
	if done, err := r.assemble(nil); err != nil || done[0].Made != 1 {
		t.Errorf("%+v, %v: want another release to be asked", done, err)
	}
	m.Images = nil
	r.image(m, "k", "sm_80", "k_new", plainUse, 80, 90, 120)
	if done, err := r.assemble(nil); err != nil || done[0].Made != 1 {
		t.Errorf("%+v, %v: want the new text to be assembled", done, err)
	}
}

// Kernels that take more than the table says are refused, and those that spill without
// being in it.
func TestRegisters(t *testing.T) {
	spilled := "    280 bytes stack frame, 436 bytes spill stores, 756 bytes spill loads\nptxas info    : Used 128 registers, used 1 barriers, 288 bytes cumulative stack size"
	for name, c := range map[string]struct{ used, table, want string }{
		"as recorded":      {spilled, "kernel sm_80\nk 128+436\n", ""},
		"less":             {plainUse, "kernel sm_80\nk 128+436\n", ""},
		"more registers":   {plainUse, "kernel sm_80\nk 39\n", "k for sm_80: 40, expected at most 39"},
		"more stack":       {spilled, "kernel sm_80\nk 128+435\n", "k for sm_80: 128+436, expected at most 128+435"},
		"a new kernel":     {plainUse, "kernel sm_80\nother 1\n", ""},
		"a new one spills": {spilled, "kernel sm_80\nother 1\n", "k for sm_80: 128+436, expected none of its registers to be spilled"},
		"of another chip":  {spilled, "kernel sm_80 sm_90\nk - 128+436\n", "expected none"},
		"no table":         {spilled, "", ""},
		"nonsense in it":   {plainUse, "kernel sm_80\nk many\n", `"many": expected registers`},
		"too few numbers":  {plainUse, "kernel sm_80 sm_90\nk 40\n", "expected a kernel and a number for each of [sm_80 sm_90]"},
		"nothing was said": {"ptxas info    : nothing", "", "does not say how many registers k uses"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAssembleRig(t, "12.9.86")
			r.image(&Manifest{Name: "set", ABI: kernel.ABI}, "k", "sm_80", "k", c.used, 80)
			if c.table != "" {
				r.write(filepath.Join(r.images, UseFile), "# comment\n"+c.table)
			}
			_, err := r.assemble(func(a *Assembly) { a.Chips = []string{"sm_80"} })
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v: want %q", err, c.want)
			}
			if _, statErr := os.Stat(filepath.Join(r.out, "mine-sm_80.cubins")); (statErr == nil) != (err == nil) {
				t.Errorf("%v: container: %v", err, statErr)
			}
		})
	}
}

// The table that is recorded is one that holds.
func TestRecord(t *testing.T) {
	r := newAssembleRig(t, "12.9.86")
	m := &Manifest{Name: "set", ABI: kernel.ABI}
	r.image(m, "k", "sm_80", "k", plainUse, 80)
	r.image(m, "k", "sm_90", "k", strings.Replace(plainUse, "0 bytes spill stores", "8 bytes spill stores", 1), 90, 120)
	if _, err := r.assemble(func(a *Assembly) { a.Record = true }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.images, UseFile))
	if err != nil || !strings.HasSuffix(string(text), "\nkernel sm_80 sm_90 sm_120\nk 40 40+8 40+8\n") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := r.assemble(nil); err != nil {
		t.Error(err)
	}
}

// Another assembler has a table of its own, for one type: images for others are not assembled.
func TestRecordOfAnotherAssembler(t *testing.T) {
	r := newAssembleRig(t, "13.5.37")
	m := &Manifest{Name: "set", ABI: kernel.ABI}
	r.image(m, "k", "sm_80", "k", plainUse, 80, 90, 120)
	r.image(m, "sums", "sm_80", "sums", plainUse, 80, 90, 120)
	r.image(m, "more", "sm_80", "more", plainUse) // the assembler would fail
	for i := range m.Images {
		m.Images[i].Type = map[string]string{"sums": "f32", "more": "f16"}[m.Images[i].Family]
	}
	if err := m.write(r.images); err != nil {
		t.Fatal(err)
	}
	other := func(a *Assembly) { a.Types, a.Table, a.Out = []string{"f32"}, "registers-13.txt", "" }
	if _, err := r.assemble(func(a *Assembly) { other(a); a.Record = true }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.images, "registers-13.txt"))
	if err != nil || !strings.HasSuffix(string(text), "\nkernel sm_80 sm_90 sm_120\nk 40 40 40\nsums 40 40 40\n") {
		t.Errorf("%s, %v", text, err)
	}
	r.write(filepath.Join(r.images, "registers-13.txt"), strings.Replace(string(text), "sums 40", "sums 39", 1))
	if _, err := r.assemble(other); err == nil || !strings.Contains(err.Error(), "sums for sm_80: 40, expected at most 39 (") || !strings.Contains(err.Error(), "registers-13.txt") {
		t.Errorf("%v: expected the kernel that takes more than its table says", err)
	}
}

// An image that cannot be assembled is named, and no container is left.
func TestAssembleRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *assembleRig, a *Assembly)
		want  string
	}{
		"no assembler":       {func(_ *assembleRig, a *Assembly) { a.Assembler = "/nonexistent" }, "needs NVIDIA's assembler ptxas"},
		"another program":    {func(_ *assembleRig, a *Assembly) { a.Assembler = "true" }, "expected NVIDIA's assembler ptxas"},
		"it fails":           {func(r *assembleRig, _ *Assembly) { os.RemoveAll(r.answers) }, "set/k-sm_80 for sm_"},
		"for another chip":   {func(_ *assembleRig, a *Assembly) { a.Chips = []string{"sm_90", "x"} }, "expected a name such as sm_90"},
		"for an old chip":    {func(_ *assembleRig, a *Assembly) { a.Chips = []string{"sm_75"} }, "is for sm_75 or older chips"},
		"image is damaged":   {func(r *assembleRig, _ *Assembly) { r.write(filepath.Join(r.images, "k-sm_80.ptx.gz"), "x") }, "kernel image k-sm_80"},
		"no images":          {func(r *assembleRig, a *Assembly) { a.Images = []string{r.out} }, "kernel images"},
		"it has other names": {func(r *assembleRig, _ *Assembly) { renameKernels(r) }, "its machine code has the kernels [k], its manifest says [other]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAssembleRig(t, "12.9.86")
			r.image(&Manifest{Name: "set", ABI: kernel.ABI}, "k", "sm_80", "k", plainUse, 80, 90, 120)
			_, err := r.assemble(func(a *Assembly) { c.spoil(r, a) })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: want %q", err, c.want)
			}
			if files, _ := filepath.Glob(r.out + "/*-sm_80*"); len(files) != 0 {
				t.Errorf("%v are there", files)
			}
		})
	}
}

func renameKernels(r *assembleRig) {
	m, err := readManifest(r.images)
	if err != nil {
		r.t.Fatal(err)
	}
	m.Images[0].Symbols = []string{"other"}
	if err := m.write(r.images); err != nil {
		r.t.Fatal(err)
	}
}
