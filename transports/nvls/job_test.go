package nvls_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// The committed PTX sums and stores through windows of the emulated driver.
func TestSwitchOnTheEmulatedDriver(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, o := range job(t, n) {
			if !o.Summed || o.Refused != "" || o.Failed != "" {
				t.Errorf("%d ranks: %+v", n, o)
			}
		}
	}
}

// A unit of windows that is larger than that of memory is asked for.
func TestUnitIsAskedFor(t *testing.T) {
	for _, o := range job(t, 2, "CUDA_EMULATED_MULTICAST_UNIT=4194304") {
		if o.Failed != "" || !strings.Contains(o.Refused, "expected whole units of memory") {
			t.Errorf("%+v: expected a refusal of memory of half a unit", o)
		}
	}
}

// refusedByAll checks that all ranks got the same refusal of one of them, and went on.
func refusedByAll(t *testing.T, all []outcome, words ...string) {
	t.Helper()
	for _, o := range all {
		if o.Failed != "" || o.Summed || o.Refused == "" {
			t.Errorf("%+v: expected a refusal, and a job that goes on", o)
		}
		for _, w := range words {
			if !strings.Contains(o.Refused, w) {
				t.Errorf("rank %d: %s: expected it to say %q", o.Rank, o.Refused, w)
			}
		}
	}
}

// steps are the driver's functions by which ranks make a window, with the ranks that call each.
var steps = []string{
	"cuMulticastGetGranularity@0", "cuMulticastGetGranularity@1", "cuMulticastCreate@0", "cuMemExportToShareableHandle@0", "cuMemImportFromShareableHandle@1",
	"cuMulticastAddDevice@0", "cuMulticastAddDevice@1", "cuMulticastBindMem@0", "cuMulticastBindMem@1", "cuMemMap@0", "cuMemMap@1",
}

// Each answer of the driver, to each step, on one rank, is a refusal on all, with the words for its code.
func TestFaultsOnOneRank(t *testing.T) {
	for _, step := range steps {
		for code, words := range map[string]string{
			"1": "without a reset of the GPUs", "2": "no room for another window", "47": "no room for another window", "101": "in different partitions of the switch",
			"401": "the fabric manager does not run", "800": "no device of capabilities", "801": "there is no switch, or a part of a GPU",
		} {
			fault := step + ":" + code
			t.Run(fault, func(t *testing.T) {
				t.Parallel()
				call, _, _ := strings.Cut(fault, "@")
				refusedByAll(t, job(t, 2, emulated.EnvFaults+"="+fault), words, call)
			})
		}
	}
}

// A fabric manager that is slow gets three tries of all ranks together, and then they go on without.
func TestNotReadyIsTriedAgain(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		for _, o := range job(t, 3, emulated.EnvFaults+"=cuMulticastBindMem@1:802x2~50") {
			if !o.Summed || o.Refused != "" || o.Failed != "" {
				t.Errorf("%+v", o)
			}
		}
	})
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			for _, o := range job(t, 2, emulated.EnvFaults+"="+step+":802x1~50") {
				if !o.Summed || o.Refused != "" || o.Failed != "" {
					t.Errorf("%+v", o)
				}
			}
		})
	}
	t.Run("for ever", func(t *testing.T) {
		t.Parallel()
		refusedByAll(t, job(t, 2, emulated.EnvFaults+"=cuMulticastBindMem@1:802"), "the fabric manager is slow")
	})
}

// Where multicast is off, or there is none, no function of the driver for it is called.
func TestNothingIsCalledWhereMulticastIsOff(t *testing.T) {
	for name, c := range map[string]struct{ env, words string }{
		"by NCCL":     {"NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=0"},
		"by a switch": {"MSCCLPP_NVLS=0", "MSCCLPP_NVLS=0"},
		"no hardware": {emulated.EnvWithout + "=multicast", "the GPU has no multicast"},
		"old driver":  {"CUDA_EMULATED_VERSION=12050", "CUDA 12.5: expected 12.6"},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "calls")
			refusedByAll(t, job(t, 2, c.env, "CUDA_EMULATED_MULTICAST_LOG="+log), c.words)
			if calls, err := os.ReadFile(log); !os.IsNotExist(err) {
				t.Errorf("%v: expected no call:\n%s", err, calls)
			}
		})
	}
	// The same job with multicast calls each of them, so the log is one.
	log := filepath.Join(t.TempDir(), "calls")
	job(t, 2, "CUDA_EMULATED_MULTICAST_LOG="+log)
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(calls)), "\n")
	for _, want := range []string{"cuMulticastCreate 0", "cuMulticastAddDevice 0", "cuMulticastAddDevice 1", "cuMulticastBindMem 0", "cuMulticastBindMem 1",
		"cuMulticastUnbind 0", "cuMulticastUnbind 1", "cuMulticastGetGranularity 0", "cuMulticastGetGranularity 1"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no call %q in %q", want, lines)
		}
	}
	if slices.Contains(lines, "cuMulticastCreate 1") {
		t.Error("a rank that is not the root makes an object")
	}
}
