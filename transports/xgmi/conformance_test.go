package xgmi_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

func embedded(t testing.TB) framework.Transport {
	t.Helper()
	tr, err := xgmi.NewWith(xgmi.Config{}.Defaults(), emulatedGPUs)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var distances = plugintest.Distances(xgmi.Name, embedded, func() []string { return []string{roleKey + "=plugin", gpusKey + "=" + os.Getenv(gpusKey)} })

// TestConformanceWithoutGPU runs the part of the suite that needs only memory of the host.
func TestConformanceWithoutGPU(t *testing.T) {
	for name, open := range distances {
		t.Run(name, func(t *testing.T) { transporttest.Run(t, open) })
	}
}

// TestConformance runs the suite over the emulated runtime, ranks on its GPUs in turn.
func TestConformance(t *testing.T) {
	n := gpus(t)
	for name, open := range distances {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, open, func(o *transporttest.Options) {
				o.Device = func(rank int) (device.Device, error) { return hip.Open(rank % n) }
				o.TestLimit = 2 * time.Minute
				if os.Getenv(runtime.EnvMachine) == "" {
					o.Known = map[string]string{"control/images": "the emulated runtime was given the actor alone"}
				}
			})
		})
	}
}

// TestConformanceOfHostMemory does it with memory of the host that the GPUs register: what those use that cannot address each
// other's.
func TestConformanceOfHostMemory(t *testing.T) {
	n := gpus(t)
	transporttest.Run(t, distances["embedded"], func(o *transporttest.Options) {
		o.Device = func(rank int) (device.Device, error) { return hip.Open(rank%n, hip.Hosted()) }
		o.Match = regexp.MustCompile("^(control/register|parcels|ownership|device|driven)")
		o.TestLimit = 2 * time.Minute
	})
}
