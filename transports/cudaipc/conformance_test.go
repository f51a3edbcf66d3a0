package cudaipc_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/nvml"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

const (
	roleKey = "CUDAIPC_TEST_ROLE" // makes this test program the plugin
	gpusKey = "CUDAIPC_TEST_GPUS" // addresses of the emulated GPUs, which no NVML shows
)

func TestMain(m *testing.M) {
	if os.Getenv(roleKey) == "plugin" {
		plugins.Serve(func(c cudaipc.Config) (framework.Transport, error) { return cudaipc.NewWith(c, findGPUs) })
	}
	given := os.Getenv(emulated.EnvImages)
	code := m.Run()
	if dir := os.Getenv(emulated.EnvImages); dir != given { // it was made here
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// findGPUs lists the emulated GPUs if there are some, else those of the machine.
func findGPUs(ctx context.Context) ([]topo.GPU, error) {
	list := os.Getenv(gpusKey)
	if list == "" {
		return nvml.Within(ctx)
	}
	var gpus []topo.GPU
	for i, pci := range strings.Split(list, " ") {
		gpus = append(gpus, topo.GPU{Device: framework.Device{Type: "cuda", Index: i}, Name: "emulated", PCI: pci, NUMA: -1})
	}
	return gpus, nil
}

func embedded(t testing.TB) framework.Transport {
	t.Helper()
	tr, err := cudaipc.NewWith(cudaipc.Config{}.Defaults(), findGPUs)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

var distances = plugintest.Distances(cudaipc.Name, embedded, func() []string { return []string{roleKey + "=plugin", gpusKey + "=" + os.Getenv(gpusKey)} })

// TestConformanceWithoutGPU runs the part of the suite that needs only memory of the host.
func TestConformanceWithoutGPU(t *testing.T) {
	for name, open := range distances {
		t.Run(name, func(t *testing.T) { transporttest.Run(t, open) })
	}
}

// TestConformanceOnGPUs runs the suite on the GPUs of the machine, ranks in turn; on
// a machine without, on the emulated driver.
func TestConformanceOnGPUs(t *testing.T) {
	n := gpus(t)
	for name, open := range distances {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, open, func(o *transporttest.Options) {
				o.Device = func(rank int) (device.Device, error) { return cuda.Open(rank % n) }
				o.TestLimit = 5 * time.Minute // a driver compiles the images when it loads them
				if isEmulated() {
					o.Known = map[string]string{"control/images": "the emulated driver was given the actor alone"}
				}
			})
		})
	}
}

// TestConformanceOfOldMemory does it with memory from the driver's older allocator,
// whose handles no process opens that made them: within one, the address serves.
func TestConformanceOfOldMemory(t *testing.T) {
	n := gpus(t)
	transporttest.Run(t, distances["embedded"], func(o *transporttest.Options) {
		o.Device = func(rank int) (device.Device, error) { return cuda.Open(rank%n, cuda.Legacy()) }
		o.Match = regexp.MustCompile("^(parcels|ownership|device|driven)/")
		o.TestLimit = 2 * time.Minute
	})
}

// TestConformanceOfHostMemory does it with memory of the host that the GPUs register:
// what those use that cannot address each other's.
func TestConformanceOfHostMemory(t *testing.T) {
	n := gpus(t)
	transporttest.Run(t, distances["embedded"], func(o *transporttest.Options) {
		o.Device = func(rank int) (device.Device, error) { return cuda.Open(rank%n, cuda.Hosted()) }
		o.Match = regexp.MustCompile("^(control/register|parcels|ownership|device|driven)")
		o.TestLimit = 2 * time.Minute
	})
}

// emulate has the emulated driver stand in for the rest of the process, which opens
// a driver once. Of the kernels it gets the actor alone.
var emulate = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path, err := emulated.Library(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cudaipc-test-*")
	if err != nil {
		return err
	}
	const from = "../../framework/kernel/actor/"
	err = emulated.Prepare(ctx, dir, emulated.Source{Spec: from + "kernels/kernels.json", Images: from + "image", Types: []string{"f32"}})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return errors.Join(os.Setenv(cuda.EnvLibrary, path), os.Setenv(emulated.EnvImages, dir))
})

func isEmulated() bool { return os.Getenv(emulated.EnvImages) != "" }

// gpus counts the GPUs, those of the emulated driver where there are none.
func gpus(t *testing.T) int {
	t.Helper()
	n, err := cuda.Count()
	if errors.Is(err, framework.ErrUnavailable) && os.Getenv(cuda.EnvLibrary) == "" {
		if err := emulate(); err != nil {
			t.Skipf("no GPU, and no emulated driver: %v", err)
		}
		n, err = cuda.Count()
	}
	if err != nil {
		t.Fatal(err)
	}
	if !isEmulated() {
		return n
	}
	var list []string
	for i := range n {
		d, err := cuda.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d.PCI())
		if err := d.Close(); err != nil {
			t.Errorf("close GPU %d: %v", i, err)
		}
	}
	t.Setenv(gpusKey, strings.Join(list, " "))
	return n
}
