package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo/nvml"
	"github.com/mscclpp-go/mscclpp/transports/cudaipc"
)

// The example as it runs under mscclpp-run on GPUs, all ranks in this process: streams,
// events, device memory, the PTX.
func TestOnGPUs(t *testing.T) {
	n, err := cuda.Count()
	if err != nil {
		t.Skipf("no GPU: %v", err)
	}
	code, err := options{}.image([]string{"sm_80"})
	if err != nil {
		t.Fatal(err)
	}
	carrier := func() (framework.Transport, error) { return cudaipc.NewWith(cudaipc.Config{}.Defaults(), nvml.Within) }
	for _, s := range []shape{{m: 256, n: 256, k: 64, ranks: 1}, {m: 512, n: 256, k: 96, ranks: 2}, {m: 512, n: 128, k: 32, ranks: 4}} {
		if s.ranks > n {
			continue // kernels that wait for each other need a GPU each
		}
		for r, err := range together(t, s.ranks, carrier, func(rank int) (device.Device, error) { return cuda.Open(rank) },
			func(ctx context.Context, x *collectives.Comm) error {
				got, err := compare(ctx, x, code, s, 2)
				if err == nil && (got.count != 2 || got.fused <= 0 || got.apart < got.multiply) {
					t.Errorf("%+v: rank %d reports %+v", s, x.Communicator().Rank(), got)
				}
				return err
			}) {
			if err != nil {
				t.Errorf("%+v: rank %d: %v", s, r, err)
			}
		}
	}
}

// TestOnGPUs with the emulated driver, in a process of its own: a process opens one
// driver, once.
func TestOnEmulatedGPUs(t *testing.T) {
	library := emulated.Build(t)
	images := emulated.Images(t, emulated.Source{Spec: "kernel/kernels.json", Images: "image"},
		emulated.Source{Spec: "../../collectives/image/kernels.json", Types: []string{"f16"}})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "-test.run=^TestOnGPUs$", "-test.v")
	c.Env = append(os.Environ(), cuda.EnvLibrary+"="+library, emulated.EnvImages+"="+images,
		"LD_LIBRARY_PATH="+filepath.Dir(library)+":"+os.Getenv("LD_LIBRARY_PATH"))
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "was built for another argument layout") {
		t.Skipf("no kernels of the collectives for GPUs that have this tree's arguments: their committed images are older\n%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestOnGPUs") {
		t.Errorf("%v\n%s", err, out)
	}
}
