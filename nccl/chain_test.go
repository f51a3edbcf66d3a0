package nccl

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// A call waits for all that were queued before it on its device, also for those of several threads and ranks, and devices do not
// wait for each other.
func TestChainOfCalls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	program := filepath.Join(scratch(t), "chain")
	run(t, exec.Command("cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/chain.c", "src/chain.c", "-lpthread"))
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	if got := run(t, exec.CommandContext(ctx, program)); got != "ok\n" {
		t.Errorf("it prints %q", got)
	}
}
