package nccl

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// Pinned memory and the default streams serve; a rank that waits for a call which the other one has only captured learns of whom it waits for.
func TestBuffersAndStreams(t *testing.T) {
	t.Parallel()
	small := []string{emulated.EnvMemory + "=67108864", "MSCCLPP_COMM__SCRATCH=8388608"} // for a hundred times half of it
	expectOK(t, runRanks(t, "buffers.c", 2, onGPUs(t, small...)))
}

// GPUs that have too little memory for a communicator: the first rank that finds out says so, and the other one does not wait for it.
func TestMemoryRunsOutInSetUp(t *testing.T) {
	t.Parallel()
	expectOK(t, runRanks(t, "buffers.c", 2, onGPUs(t, "TEST_MODE=short", emulated.EnvMemory+"=4194304")))
}
