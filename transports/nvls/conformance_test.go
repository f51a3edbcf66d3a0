package nvls_test

import (
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/nvls"
)

func embedded(t testing.TB) framework.Transport {
	t.Helper()
	tr, err := nvls.New(nvls.Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var distances = plugintest.Distances(nvls.Name, embedded, func() []string { return []string{roleKey + "=plugin"} })

// TestConformanceWithoutGPU runs the part of the suite that needs no GPU.
func TestConformanceWithoutGPU(t *testing.T) {
	for name, open := range distances {
		t.Run(name, func(t *testing.T) { transporttest.Run(t, open) })
	}
}

// TestConformance runs the suite on emulated GPUs: a real switch is left alone.
func TestConformance(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	t.Setenv(emulated.EnvRun, "ptx")
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
	t.Setenv("NCCL_NVLS_ENABLE", "1")
	for name, open := range distances {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, open, func(o *transporttest.Options) {
				o.Facts = framework.Facts{Host: "conformance", NUMA: -1, Other: map[string]string{topo.FactMulticast: topo.MulticastYes, topo.FactDriver: "13000"}}
				o.Device = func(rank int) (device.Device, error) { return cuda.Open(rank % 4) }
				o.TestLimit = time.Minute
			})
		})
	}
}
