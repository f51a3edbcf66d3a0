package nccl

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// end is how a process has ended.
type end struct {
	code int // -1: by a signal
	text string
}

// runRanks runs a program as n ranks of a job, and returns how each has ended. In the environment -RANK stands for the number.
func runRanks(t *testing.T, source string, n int, own []string, args ...string) []end {
	t.Helper()
	program, m, out := compile(t, source), newMaker(t), make([]end, n)
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			c := exec.CommandContext(ctx, program, args...)
			c.Env = append(strings.Split(strings.ReplaceAll(strings.Join(own, "\x00"), "-RANK", fmt.Sprintf("-%d", r)), "\x00"), fmt.Sprintf("TEST_RANK=%d", r), fmt.Sprintf("TEST_SIZE=%d", n), "TEST_ID="+hex.EncodeToString(m.ids[0][:]))
			text, err := c.CombinedOutput()
			out[r].text = string(text)
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				out[r].code = exit.ExitCode()
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return out
}

// A rank that exits has left, whatever it has not destroyed: that is an error of a call which needs it, and of
// nothing else. One that fails or is killed is dead, and all learn of it.
func TestExit(t *testing.T) {
	t.Parallel()
	for how, code := range map[string]int{"": 0, "3": 3, "killed": -1} {
		t.Run(how, func(t *testing.T) {
			for _, more := range [][]string{nil, {"MSCCLPP_TRANSPORTS=shm,tcp", "MSCCLPP_BOOTSTRAP__HOST_ID=host-RANK"}} {
				for r, e := range runRanks(t, "death.c", 4, environ(t, more...), strings.Fields(how)...) {
					want := 0
					if r == 1 {
						want = code
					}
					if e.code != want || !strings.Contains(e.text, "ok") {
						t.Errorf("%v: rank %d ended with %d, expected %d:\n%s", more, r, e.code, want, e.text)
					}
				}
			}
		})
	}
}

func TestAborts(t *testing.T) {
	t.Parallel()
	alone(t, "aborts.c", "MSCCLPP_NCCL_DESTROY_SECONDS=10") // by then a rank waits for the others, on a busy machine, too
}

// Abort ends what another thread makes of the communicator, whether that waits for ranks to meet, or to agree when they have met.
func TestAbortsOfWhatIsMade(t *testing.T) {
	t.Parallel()
	alone(t, "aborts_made.c", "MSCCLPP_NCCL_DESTROY_SECONDS=0.2")
}

// Destroy says what the communicator has waited for, also where calls of other threads fail meanwhile: the last error of the process is theirs.
func TestDestroyBesideFailures(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	alone(t, "noise.c", "MSCCLPP_NCCL_DESTROY_SECONDS=0.1", "NCCL_DEBUG=WARN", "NCCL_DEBUG_FILE="+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, said, found := strings.Cut(string(text), "has not ended within 0.1 s (MSCCLPP_NCCL_DESTROY_SECONDS), and was aborted: ")
	said, _, _ = strings.Cut(said, "\n")
	if !found || !strings.Contains(said, "aborted") || strings.Contains(said, "ncclCommCount") {
		t.Errorf("Destroy said %q, expected how the communicator ended", said)
	}
}

// expectOK fails unless all ranks ended in good order.
func expectOK(t *testing.T, ends []end) {
	t.Helper()
	for r, e := range ends {
		if e.code != 0 || !strings.Contains(e.text, "ok") {
			t.Errorf("rank %d ended with %d:\n%s", r, e.code, e.text)
		}
	}
}

// Calls on several streams come one behind the other, also when the program destroys the streams, and Destroy waits
// for them, and for nothing else on the device.
func TestStreams(t *testing.T) {
	t.Parallel()
	expectOK(t, runRanks(t, "streams.c", 2, onGPUs(t)))
}

// Abort ends this rank's part in any state, and another rank's when that needs it; so does exit.
func TestAbortsOnGPUs(t *testing.T) {
	t.Parallel()
	expectOK(t, runRanks(t, "aborts_device.c", 2, onGPUs(t, "CUDA_EMULATED_HOLD="+filepath.Join(t.TempDir(), "hold"))))
}
