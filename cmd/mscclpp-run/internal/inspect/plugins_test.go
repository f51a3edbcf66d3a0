package inspect

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// The table says for which chips there is machine code, and what of it cannot be read.
func TestMachineCodeIsCounted(t *testing.T) {
	set, err := actor.Images()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const kernels = "../../../../framework/kernel/actor"
	files := emulated.MachineCode(t, t.TempDir(), dir, []string{"sm_80", "sm_90"},
		emulated.Source{Spec: kernels + "/kernels/kernels.json", Images: kernels + "/image", Types: []string{"f32"}})
	broken := filepath.Join(dir, "x-sm_90.cubins")
	if err := os.WriteFile(broken, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	gpu := &found{Entry: plugins.Entry{Name: "gpu"}}
	gpu.info.Description.Images = set.Infos()
	gpu.code, gpu.fault = codeOf(gpu, append(files, broken))
	none := &found{Entry: plugins.Entry{Name: "none"}}
	none.code, none.fault = codeOf(none, append(files, broken))
	var out bytes.Buffer
	if err := pluginTable(&verb.Env{Stdout: &out}, []found{*gpu, *none}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "\ngpu: images with machine code: sm_80 2, sm_90 4\n") || strings.Count(text, broken) != 1 || strings.Contains(text, "none: ") {
		t.Error(text)
	}
}
