package collectives

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check"
	"github.com/mscclpp-go/mscclpp/framework/kernel/check/checktest"
	"github.com/mscclpp-go/mscclpp/internal/proven"
)

// The kernels as a program of their own, with ranks as threads over plain memory:
// what goes wrong here is not the fault of any transport. Fast ranks run ahead of
// slow ones, packet epochs start where flags wrap around.
func TestKernelsWithThreads(t *testing.T) {
	for _, dtype := range []kernel.DataType{kernel.BFloat16} {
		t.Run(dtype.String(), func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "check")
			build := exec.CommandContext(t.Context(), "g++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-pthread",
				"-DMSCCLPP_TYPE="+strconv.Itoa(int(dtype)), "-I../framework/kernel/include", "kernels/testdata/check.cc", "-o", program)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a deadlock fails here
			defer cancel()
			out, err := exec.CommandContext(ctx, program, "1", "100").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "ok ") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// The kernels in the emulator, on grids that differ from rank to rank: threads in
// turn, under seeded schedules, with ThreadSanitizer, which has fewer of them as it is
// slow, and with AddressSanitizer. Nothing of it depends on time, so what has passed on
// this machine is not repeated (.ci/run --all repeats it).
func TestKernelsOnGrids(t *testing.T) {
	for _, source := range []struct {
		file         string
		seeds, races int
	}{
		{"emulated.cc", 20, 10},
		{"ll.cc", 10, 3}, // has four numbers of ranks for each kernel
		{"lamport.cc", 10, 3},
		{"messages.cc", 10, 5},
		{"exchange.cc", 20, 20},
		{"sendrecv.cc", 20, 20},
	} {
		program := check.Program{Source: filepath.Join("kernels", "testdata", source.file)}
		for _, m := range check.Modes {
			t.Run(source.file+"/"+m.Name, func(t *testing.T) {
				t.Parallel() // an emulator has one thread
				switch m.Name {
				case check.Seeds.Name:
					m.Seeds = source.seeds
				case check.Races.Name:
					m.Seeds = source.races
				}
				executable := checktest.Build(t, program, m)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // up to 15 s where nothing else runs, and twice that to compile
				defer cancel()
				before, err := proven.Once(executable, fmt.Sprintf("%s %d %q", m.Name, m.Seeds, check.Environ), func() error {
					r, err := check.Run(ctx, executable, m)
					if err == nil && r.Exit != 0 {
						err = fmt.Errorf("exit code %d\n%s", r.Exit, r.Output)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
				if before {
					t.Log("the same executable has passed before")
				}
			})
		}
	}
}
