package nccl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// A program may capture the first call of a type: with PTX alone the call loads the kernels,
// and with machine code they are all there when the communicator is.
func TestFirstCallOfATypeIsCaptured(t *testing.T) {
	t.Parallel()
	driver := emulated.Build(t)
	from := emulated.Source{Spec: "../collectives/image/kernels.json", Types: []string{"f32", "bf16"}}
	kernels, beside := emulatedImages(t, from), t.TempDir()
	emulated.MachineCode(t, kernels, beside, []string{"sm_90"}, from)
	environment := []string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), cuda.EnvLibrary + "=" + driver, "LD_LIBRARY_PATH=" + filepath.Dir(driver),
		emulated.EnvImages + "=" + kernels, emulated.EnvMemory + "=1073741824", "MSCCLPP_PLUGINS__DIRS=" + beside, "MSCCLPP_LOG__LEVEL=info",
	}
	for name, c := range map[string]struct {
		more     []string
		compiled bool
	}{
		"machine code":               {[]string{"TEST_NOTHING_TO_LOAD=1"}, false},
		"PTX":                        {[]string{"MSCCLPP_GPU_CODE=ptx"}, true},
		"machine code when it calls": {[]string{"MSCCLPP_COLLECTIVES__PRELOAD=false"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for r, text := range ranksWith(t, "captured.c", 2, append(environment, c.more...)) {
				if strings.Contains(text, "the driver has compiled kernels") != c.compiled {
					t.Errorf("rank %d: expected kernels that the driver compiles: %v\n%s", r, c.compiled, text)
				}
			}
		})
	}
}
