package nccl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// Each of two threads changes, between two calls that are made without Go, all that such calls depend on.
func TestFlips(t *testing.T) {
	t.Parallel()
	plan := filepath.Join(t.TempDir(), "own.json")
	if err := os.WriteFile(plan, []byte(ownPlan()), 0o600); err != nil {
		t.Fatal(err)
	}
	ranksWith(t, "flips.c", 2, onGPUsWith(t, []emulated.Source{{Spec: "../plan/image/kernels.json", Types: []string{"f32"}}}, "PLAN="+plan))
}

// Launches on streams that have few of the processors leave some of these free.
func TestGreenContexts(t *testing.T) {
	t.Parallel()
	ranksWith(t, "green.c", 2, onGPUs(t))
}
