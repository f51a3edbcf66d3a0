package shm

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
)

// The table in kernels.go, the spec that `make kernels` builds from and the sources
// are three statements of one fact.
func TestClaimsMatchSources(t *testing.T) {
	text, err := os.ReadFile("kernels/kernels.json")
	if err != nil {
		t.Fatal(err)
	}
	var spec image.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Families) != len(families) {
		t.Fatalf("%d families in the spec, %d in kernels.go", len(spec.Families), len(families))
	}
	entry := regexp.MustCompile(`MSCCLPP_KERNEL\((\w+),`)
	ofGPUs := regexp.MustCompile(`(?s)#if MSCCLPP_(?:GPU_KERNELS|PUSHED_SUMS)\n.*?#endif|#if MSCCLPP_TARGET_GPU\n(?:MSCCLPP_KERNEL[^\n]*\n)+#endif|#if MSCCLPP_TARGET_GPU\n.*?#endif  // MSCCLPP_TARGET_GPU`)
	// A kernel beside one that is claimed: workspaces ask the image of that one for it.
	const beside = "mscclpp_inference_rms_norm"
	overWindows := map[string]string{kernellist.Reduce: "switch_family.h", "move": "switch_move_family.h"}
	for i, f := range spec.Families {
		if f.Name != families[i].name || (len(f.Types) > 0) != (families[i].types[0] != "") {
			t.Errorf("family %s with types %v: expected %+v", f.Name, f.Types, families[i])
		}
		if want := slices.Sorted(slices.Values(archs)); !slices.Equal(f.Targets, want) {
			t.Errorf("family %s: targets %v: expected %v", f.Name, f.Targets, want)
		}
		source := filepath.Join("kernels", f.Sources[0])
		switch f.Name {
		case kernellist.Actor:
		case kernellist.Plan:
			source = filepath.Join("..", "..", "plan", "kernels", f.Name+"_family.h")
		case kernellist.Inference:
			source = filepath.Join("..", "..", "inference", "kernels", "norm_family.h")
		case kernellist.MoE:
			source = filepath.Join("..", "..", "inference", "moe", "kernels", "moe_family.h")
		default:
			source = filepath.Join("..", "..", "collectives", "kernels", f.Name+"_family.h")
		}
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if header := overWindows[f.Name]; header != "" {
			more, err := os.ReadFile(filepath.Join("..", "..", "collectives", "kernels", header))
			if err != nil {
				t.Fatal(err)
			}
			code = append(code, more...)
		}
		var have, want []string
		for _, m := range entry.FindAllSubmatch(ofGPUs.ReplaceAll(code, nil), -1) {
			if string(m[1]) != beside {
				have = append(have, string(m[1]))
			}
		}
		for _, k := range kernels() {
			if k.Family == f.Name {
				want = append(want, k.Symbol)
			}
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s has the kernels\n%v\nkernels.go claims\n%v", source, have, want)
		}
	}
}

// Without images everything but kernels works, and says what to do.
func TestImagesThatAreNotBuilt(t *testing.T) {
	tr, err := newTransport(Config{Images: filepath.Join(t.TempDir(), "nowhere"), DrainCPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	d := must[framework.Description](t)(tr.Describe(bound(t)))
	if len(d.Images) != len(archs)*(2*int(kernel.DataTypes)+len(kernellist.InferenceTypes())+len(kernellist.MoETypes())+2) || len(d.Kernels) != len(kernels()) {
		t.Fatalf("%d images, %d kernels", len(d.Images), len(d.Kernels))
	}
	for _, i := range d.Images {
		if i.SHA256 != "" || i.ABI != kernel.ABI {
			t.Errorf("%+v: expected no checksum of what is not there", i)
		}
		_, err := tr.Image(bound(t), i.ID)
		if framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "make kernels") || !strings.Contains(err.Error(), "nowhere") {
			t.Fatalf("%v: expected ErrUnavailable that names make kernels and the folder", err)
		}
	}
	for _, id := range []string{"", "x", "../" + d.Images[0].ID} {
		if _, err := tr.Image(bound(t), id); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%q: %v: expected ErrInvalid", id, err)
		}
	}
}

func TestImagesOfManifest(t *testing.T) {
	dir := t.TempDir()
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	manifest := image.Manifest{Name: "shm", ABI: kernel.ABI, Images: []image.Image{
		{ID: "move-x86-64-v3", Family: "move", Arch: "x86-64-v3", File: "m.so", Bytes: 5, SHA256: sum, Symbols: []string{"mscclpp_barrier_signal"}},
		{ID: "actor-x86-64-v3", Family: "actor", Arch: "x86-64-v3", File: "a.so", Bytes: 5, SHA256: sum},
	}}
	text := must[[]byte](t)(json.Marshal(manifest))
	for name, data := range map[string]string{"manifest.json": string(text), "m.so": "hello", "a.so": "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := newTransport(Config{Images: dir, DrainCPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	d := must[framework.Description](t)(tr.Describe(bound(t)))
	if len(d.Images) != 2 || d.Images[0].SHA256 != sum || len(d.Kernels) != 1 || d.Kernels[0].Symbol != "mscclpp_barrier_signal" {
		t.Errorf("%+v, %+v: expected what the manifest has", d.Images, d.Kernels)
	}
	if data, err := tr.Image(bound(t), "move-x86-64-v3"); err != nil || string(data) != "hello" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := tr.Image(bound(t), "actor-x86-64-v3"); framework.Class(err) != framework.ErrUnavailable {
		t.Errorf("a file that is not the one of the manifest: %v: expected ErrUnavailable", err)
	}
	if _, err := tr.Image(bound(t), "reduce-f32-x86-64-v3"); framework.Class(err) != framework.ErrInvalid {
		t.Errorf("an image that is not in the manifest: %v: expected ErrInvalid", err)
	}
}
