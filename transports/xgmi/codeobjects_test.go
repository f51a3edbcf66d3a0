package xgmi_test

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	interpreted "github.com/mscclpp-go/mscclpp/internal/gfx/gpus"
)

// The committed code objects of the actor pass the suite as well, which an interpreter executes under the model of the caches. The emulated
// runtime reads its environment once, so another process runs the tests.
func TestConformanceByCodeObjects(t *testing.T) {
	runtime.Build(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"gfx942", "gfx90a"} {
		t.Run(arch, func(t *testing.T) {
			machine, err := interpreted.Start(interpreted.Options{GPUs: 4, Shape: interpreted.Shape(arch), Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			c := exec.CommandContext(t.Context(), program, "-test.run=^TestConformance$/^embedded$", "-test.v")
			c.Env = append(append(os.Environ(), runtime.MachineEnv(machine.Path(), arch)...), "CUDA_EMULATED_GPUS=4")
			text, err := c.CombinedOutput()
			ran := machine.Kernels()
			if mistakes := machine.Close(); err != nil || mistakes != nil {
				t.Fatalf("%v, %v\n%s", err, mistakes, text)
			}
			if !slices.Contains(ran, actor.Symbol) {
				t.Errorf("%q have run: expected %s among them", ran, actor.Symbol)
			}
		})
	}
}
