package setup

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
)

func TestHIPWithoutALibrary(t *testing.T) {
	t.Setenv(hip.EnvLibrary, "/does/not/exist/libamdhip64.so.7")
	quiet := slog.New(slog.DiscardHandler)
	if _, err := chooseDevice(&config.Config{Device: "hip"}, "", environment(nil), quiet); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "HIP") {
		t.Errorf("%v: expected that the runtime is unavailable", err)
	}
	cfg := config.Default()
	if d, err := openDevice(framework.Device{Type: "hip"}, &cfg, "", quiet); !errors.Is(err, framework.ErrUnavailable) || d != nil {
		t.Errorf("%v, %v: expected no device", d, err)
	}
	cfg.GPUMemory = "fabric"
	if _, err := openDevice(framework.Device{Type: "hip"}, &cfg, "", quiet); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "expected device or host") {
		t.Errorf("%v: expected that the kind of memory is refused", err)
	}
}

// A local rank takes the device of its number, and auto takes AMD's GPUs where there are none of NVIDIA's.
func TestHIPOfALocalRank(t *testing.T) {
	library, _ := runtime.Build(t)
	t.Setenv(hip.EnvLibrary, library)
	t.Setenv(cuda.EnvLibrary, "/does/not/exist/libcuda.so.1")
	t.Setenv(emulated.EnvGPUs, "2")
	for wanted, expected := range map[string]string{"hip": "hip:1", "hip:0": "hip:0", "auto": "hip:1"} {
		d, err := chooseDevice(&config.Config{Device: wanted}, "", environment(map[string]string{"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}), slog.New(slog.DiscardHandler))
		if err != nil || d.String() != expected {
			t.Errorf("%s: %v, %v: expected %s", wanted, d, err, expected)
		}
	}
}

// The driver's files and the runtime name a GPU alike.
func TestNameOfAGPU(t *testing.T) {
	if got := uuidText("hip", [16]byte([]byte("0123456789abcdef"))); got != "GPU-0123456789abcdef" {
		t.Errorf("%s: expected the digits as they are", got)
	}
}
