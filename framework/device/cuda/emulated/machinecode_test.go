package emulated_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// Containers have machine code of what GPUs of the chip's kind may load, of the types that
// were asked for.
func TestMachineCodeOfSources(t *testing.T) {
	const kernels = "../../../kernel/actor"
	src := emulated.Source{Spec: kernels + "/kernels/kernels.json", Images: kernels + "/image", Types: []string{"f32", "f16"}}
	set, err := image.Open(os.DirFS(src.Images))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	var sums []string
	for _, info := range set.Infos() {
		sums = append(sums, info.SHA256)
		if info.Type == "" || info.Type == "f32" || info.Type == "f16" {
			count[info.Arch]++
		}
	}
	dir := t.TempDir()
	files := emulated.MachineCode(t, t.TempDir(), dir, []string{"sm_80", "sm_90"}, src)
	if len(files) != 2 || filepath.Base(files[1]) != "emulated-sm_90.cubins" {
		t.Fatalf("%v", files)
	}
	got, err := image.MachineCode(files, sums)
	if want := count["sm_80"] + count["sm_90"]; err != nil || got["sm_80"] != count["sm_80"] || got["sm_90"] != want {
		t.Errorf("%v, %v: expected %d for sm_90", got, err, want)
	}
}
