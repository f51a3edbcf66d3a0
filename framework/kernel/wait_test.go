package kernel_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// A wait for other blocks of a kernel has no deadline of its own: it ends with what it waits
// for, with a wait that another block has left, or with the communicator.
func TestWaitsInsideHaveNoDeadline(t *testing.T) {
	program := layouttest.Build(t, "testdata/wait.cc", "include", "-std=c++17", "-O1")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// On GPUs an abort is remembered: of kernels that stand in a queue behind a wait that was left, each leaves after a few
// polls, and none looks at memory of the host.
func TestWaitsRememberAnAbort(t *testing.T) {
	program := layouttest.Build(t, "testdata/remember.cc", "include", "-std=c++17", "-O1")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, program).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
