package xgmi_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

const (
	roleKey = "XGMI_TEST_ROLE" // makes this test program the plugin
	gpusKey = "XGMI_TEST_GPUS" // addresses of the emulated GPUs, which no file of a driver shows
)

func TestMain(m *testing.M) {
	if os.Getenv(roleKey) == "plugin" {
		plugins.Serve(func(c xgmi.Config) (framework.Transport, error) { return xgmi.NewWith(c, emulatedGPUs) })
	}
	code := m.Run()
	if folder != "" {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

// emulatedGPUs lists them.
func emulatedGPUs(context.Context) (gpus []topo.GPU, err error) {
	for i, pci := range strings.Fields(os.Getenv(gpusKey)) {
		gpus = append(gpus, topo.GPU{Device: framework.Device{Type: "hip", Index: i}, Name: "emulated", PCI: pci, NUMA: -1})
	}
	return gpus, nil
}

// folder is where the images are that stand for code objects.
var folder string

// emulate has the emulated runtime stand in for the rest of the process. Of the kernels it gets the actor alone.
var emulate = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	path, _, err := runtime.Libraries(ctx)
	if err != nil {
		return err
	}
	if folder, err = os.MkdirTemp("", "xgmi-test-*"); err != nil {
		return err
	}
	const from, device = "../../framework/kernel/actor/", "../../framework/device/hip/"
	err = emulated.Prepare(ctx, folder, emulated.Source{Spec: from + "kernels/kernels.json", Images: from + "image", Types: []string{"f32"}, AMD: true},
		emulated.Source{Spec: device + "kernels/kernels.json", Images: device + "image", AMD: true})
	return errors.Join(err, os.Setenv(hip.EnvLibrary, path), os.Setenv(emulated.EnvImages, folder))
})

// gpus counts the emulated GPUs. There is no hardware to test on.
func gpus(t *testing.T) int {
	t.Helper()
	err := emulate()
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no emulated runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	n, err := hip.Count()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i := range n {
		d, err := hip.Open(i)
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
