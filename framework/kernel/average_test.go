package kernel_test

import (
	"os/exec"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// GPUs compute averages of floats in another way than CPUs, with the same results.
func TestAveragesAreQuotients(t *testing.T) {
	program := layouttest.Build(t, "testdata/average.cc", "include", "-std=c++17", "-O1", "-DMSCCLPP_CHECK", "-ffp-contract=off")
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
