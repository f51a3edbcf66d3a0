package moe

import (
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check/checktest"
)

// The kernels in the emulator, with blocks of several threads as on a GPU: under seeded schedules, and with ThreadSanitizer.
func TestKernelWithThreads(t *testing.T) {
	program := check.Program{Source: filepath.Join("kernels", "testdata", "moe.cc"), Include: []string{"../kernels"}}
	checktest.Run(t, program, 8, check.Seeds, check.Races)
}
