package conformance_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// onGPU points package cuda to the emulated driver, with the suite's kernels, and returns their PTX.
func onGPU(t *testing.T) []byte {
	t.Helper()
	library, err := emulated.Library(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skip("no emulated driver: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	targets, err := image.ParseTargets("sm_90")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := image.ReadSpec("kernels/kernels.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	m, err := image.Build(t.Context(), spec, dir, image.Options{Targets: targets})
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skip("no compiler for PTX: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	set, err := image.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	ptx, err := set.Read(m.Images[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(emulated.EnvMemory, "67108864")
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv("NCCL_NVLS_ENABLE", "1")
	t.Setenv(cuda.EnvGDRCopy, emulated.GDRCopy(library))
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "kernels/kernels.json", Images: dir}))
	return ptx
}

// The built-in table of NVIDIA GPUs keeps every rule, over the emulated driver. In the older kind of memory, shares are of
// another kind.
func TestCUDAConforms(t *testing.T) {
	ptx := onGPU(t)
	back, err := cuda.Backend()
	if err != nil {
		t.Fatal(err)
	}
	for options, c := range map[string]struct{ match, left string }{
		"":              {"", "links/same links/both-ways links/reached"}, // the transport knows them, by the library that manages GPUs
		"memory=legacy": {"memory/|share/", "memory/placed"},              // it has no handles
	} {
		t.Run("options "+options, func(t *testing.T) {
			report, err := conformance.Suite(t.Context(), conformance.Options{
				Backend: back, Index: 1, Options: options, Image: ptx, Match: matching(c.match),
				Child: &conformance.Command{Path: "/proc/self/exe", Env: []string{envToy + "="}}, Progress: func(r conformance.Result) { t.Log(r) },
			})
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, r := range report.Results {
				if r.Error != "" {
					t.Error(r)
				}
				if r.Lacks != "" {
					left = append(left, r.Name)
				}
			}
			if got := strings.Join(left, " "); got != c.left {
				t.Errorf("not run: %s: expected %q", got, c.left)
			}
			t.Log(report.Summary())
		})
	}
}
