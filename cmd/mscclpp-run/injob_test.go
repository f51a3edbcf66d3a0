package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/plot/plottest"
	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
)

// installed is the launcher with the shm plugin, as they lie after an installation.
type installed struct{ launcher, images string }

func install(t *testing.T) installed {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return installed{filepath.Join(dir, "mscclpp-run"), collectivetest.HostImages(t)}
}

// programs builds both once for all tests: most of the time of each would go by for that. TestMain removes them.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mscclpp-run-test-")
	if err != nil {
		return "", err
	}
	built = dir
	for out, program := range map[string]string{
		dir + "/mscclpp-run":                   ".",
		dir + "/plugins/mscclpp-transport-shm": "../../transports/shm/cmd/mscclpp-transport-shm",
	} {
		if text, err := exec.Command("go", "build", "-o", out, program).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", program, err, text)
		}
	}
	return dir, nil
})

// built is the folder of programs, where there is one.
var built string

// run returns both outputs and the exit code of the launcher.
func (i installed) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*setUpBound)
	defer cancel()
	c := exec.CommandContext(ctx, i.launcher, args...)
	c.Env = append(os.Environ(), "MSCCLPP_TRANSPORT__SHM__IMAGES="+i.images, patientStart)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%q: %v, %v\n%s", args, err, ctx.Err(), errs.String())
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

func TestVerbsInAJob(t *testing.T) {
	i := install(t)
	t.Run("bench prints JSON", func(t *testing.T) {
		stdout, stderr, code := i.run(t, "-n", "4", "bench", "allreduce", "--bytes", "1K:64K", "--factor", "4", "--iters", "5", "--calls", "2", "--check", "--format", "json")
		if code != 0 || stderr != "" {
			t.Errorf("exit code %d, and on stderr %q", code, stderr)
		}
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if len(lines) != 4 {
			t.Fatalf("%d lines, want one for each size:\n%s", len(lines), stdout)
		}
		for n, line := range lines {
			var r report.Row
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if r.Errors == nil || *r.Errors != 0 || r.Bytes != 1024<<(2*n) || r.Ranks != 4 || r.TimeUS <= 0 || r.Algorithm == "" {
				t.Errorf("%s", line)
			}
			if r.Transport != "shm" || !r.TransportProcess || !strings.Contains(r.TransportSource, "mscclpp-transport-shm (pid ") {
				t.Errorf("the transport is %q, %v, %q", r.Transport, r.TransportProcess, r.TransportSource)
			}
		}
	})
	t.Run("bench prints a table and a picture", func(t *testing.T) {
		plot := filepath.Join(t.TempDir(), "plot.svg")
		stdout, stderr, code := i.run(t, "-n", "2", "bench", "allgather", "alltoall", "--bytes", "4K:16K", "--iters", "5", "--calls", "2", "--registered", "--in-place", "--plot", plot)
		if code != 0 || stderr != "" || strings.Contains(stdout, "\r") {
			t.Errorf("exit code %d, stderr %q, and in the pipe %q", code, stderr, stdout)
		}
		if !strings.Contains(stdout, "registered buffers") || !strings.Contains(stdout, "algbw") || strings.Count(stdout, " 4096 ") != 2 {
			t.Errorf("no table:\n%s", stdout)
		}
		common := "shm, 2 ranks, f32, in place, registered: "
		charts := plottest.Read(t, read(t, plot))
		if len(charts) != 2 {
			t.Fatalf("%d charts, expected 2", len(charts))
		}
		for i, chart := range charts {
			if want := []string{common + "time", common + "bus bandwidth"}; chart.Title != want[i] || !slices.Equal(chart.Names(), []string{"allgather", "alltoall"}) {
				t.Errorf("chart %d is %q of %q, expected one of %q", i, chart.Title, chart.Names(), want)
			}
			for _, s := range chart.Series {
				if len(s.X) != 3 {
					t.Errorf("%s: %d points of %s, expected one for each size", chart.Title, len(s.X), s.Name)
				}
			}
		}
	})
	t.Run("a mistake is told once", func(t *testing.T) {
		for want, args := range map[string][]string{
			`algorithm "rong" (did you mean "ring"?): expected one of `: {"-n", "2", "bench", "allreduce", "--algorithm", "rong"},
			"root 2 of 2 ranks": {"-n", "2", "check", "--case", "broadcast,f32,1,root=2"},
			`collective "sum"`:  {"-n", "2", "bench", "sum"},
		} {
			stdout, stderr, code := i.run(t, args...)
			if code != 2 || strings.Count(stderr, want) != 1 {
				t.Errorf("%q: exit code %d, want 2; on stderr %q; on stdout %q", args, code, stderr, stdout)
			}
		}
	})
	t.Run("check", func(t *testing.T) {
		stdout, _, code := i.run(t, "-n", "3", "check", "--list")
		cases := strings.Split(strings.TrimSpace(stdout), "\n")
		if code != 0 || len(cases) < 150 {
			t.Fatalf("exit code %d, %d cases", code, len(cases))
		}
		stdout, _, code = i.run(t, "-n", "3", "check", "--at-most", "10")
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if last := lines[len(lines)-1]; code != 0 || last != "10 passed, 0 failed" {
			t.Errorf("exit code %d:\n%s", code, stdout)
		}
		stdout, _, code = i.run(t, "-n", "3", "check")
		if want := fmt.Sprintf("%d passed, 0 failed\n", len(cases)+len(inferencetest.Trials())+len(moetest.Trials())); code != 0 || !strings.HasSuffix(stdout, want) {
			t.Errorf("exit code %d: expected %q:\n%s", code, want, stdout)
		}
	})
}
