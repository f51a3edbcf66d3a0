package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// Without a launcher on their hosts, ranks give their records to rank 0 when they close the job: one file has all ranks of all hosts,
// by the clock of rank 0, and the log of rank 0 has the report.
func TestTraceOfRanksThatOthersStart(t *testing.T) {
	plugins, err := filepath.Abs("../../bin/plugins")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const calls = 30
	settings := func(file string) []string { return settingsOf(fmt.Sprint("calls=", calls, " late=2"), file, plugins) }
	for name, start := range map[string]func(t *testing.T, file string) (said string, err error){
		"by torchrun": func(t *testing.T, file string) (string, error) { return byTorchrun(t, settings(file), self) },
		"by Open MPI": func(t *testing.T, file string) (string, error) {
			path, err := exec.LookPath("mpirun")
			if err != nil {
				t.Skip("needs Open MPI, which is not installed")
			}
			c := exec.CommandContext(t.Context(), path, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4", self)
			c.Env = settings(file)
			out, err := c.CombinedOutput()
			return string(out), err
		},
		"over ssh": func(t *testing.T, file string) (string, error) {
			ssh := filepath.Join(t.TempDir(), "ssh")
			script := "#!/bin/sh\nwhile :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done\nshift\nexec /bin/sh -c \"$*\"\n"
			if err := os.WriteFile(ssh, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			c := command(t, "--ssh", ssh, "--host", "a:2,b:2", "-x", asRank, "-x", "SIGHT_HOSTS", self)
			c.Env = append(c.Env, settings(file)...)
			code, out, errs := runs(c)
			if code != 0 {
				return out + errs, fmt.Errorf("code %d", code)
			}
			return out + errs, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observed(t, "", []string{"shm"}) // it skips the test where no plugins were built
			file := filepath.Join(t.TempDir(), "job.perfetto")
			said, err := start(t, file)
			if err != nil {
				t.Fatalf("%v: %s", err, said)
			}
			if !strings.Contains(said, "report: everybody waited for rank 2") {
				t.Errorf("%s: expected a report that names rank 2", said)
			}
			holdsAllCalls(t, file, calls)
		})
	}
}

// settingsOf is the environment of ranks that behave so, two on each host.
func settingsOf(what, file, plugins string) []string {
	return append(os.Environ(), asRank+"="+what, "SIGHT_HOSTS=2", "MSCCLPP_BOOTSTRAP__INSECURE=true",
		"MSCCLPP_PLUGINS__DIRS="+plugins, "MSCCLPP_TRANSPORTS=shm,tcp", "MSCCLPP_OBSERVE__TRACE="+file, "MSCCLPP_OBSERVE__REPORT=true", patientStart)
}

// When a job without a launcher fails, each rank that is left writes its own part, and these are read as one.
func TestPartsOfAFailedJob(t *testing.T) {
	observed(t, "", []string{"shm"}) // it skips the test where no plugins were built
	plugins, err := filepath.Abs("../../bin/plugins")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "job.perfetto")
	flight := t.TempDir()
	said, err := byTorchrun(t, append(settingsOf("calls=5 die=1", file, plugins), "MSCCLPP_OBSERVE__FLIGHT="+flight), self)
	if err == nil {
		t.Fatalf("%s: expected that the ranks fail", said)
	}
	hasFlightOf(t, flight, `^rank 1 failed, as rank [023] saw at call [45] of world: allreduce of 3.906 KiB by `, 3)
	parts := []string{file + ".rank-0", file + ".rank-2", file + ".rank-3"}
	code, out, errs := runs(command(t, append([]string{"trace"}, parts...)...))
	if code != 0 || !strings.Contains(out, ": 3 ranks, ") {
		t.Fatalf("code %d: %s%s: expected the trace of three ranks", code, out, errs)
	}
	for _, rank := range []string{"0", "2", "3"} {
		if !strings.Contains(out, "rank "+rank+" failed: ") {
			t.Errorf("%s: expected why rank %s failed", out, rank)
		}
	}
	if !strings.Contains(out, "rank 1") {
		t.Errorf("%s: expected the rank that was killed", out)
	}
	if names, err := filepath.Glob(file + "*"); err != nil || len(names) != len(parts) {
		t.Errorf("%q, %v: expected %q", names, err, parts)
	}
}

// hasFlightOf looks at the folder to which the ranks of a job have added their parts.
func hasFlightOf(t *testing.T, base, headline string, ranks int) {
	t.Helper()
	made, err := filepath.Glob(filepath.Join(base, "*"))
	if err != nil || len(made) != 1 {
		t.Fatalf("%q, %v: expected one folder", made, err)
	}
	text, err := os.ReadFile(filepath.Join(made[0], "README"))
	if err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(string(text), "\n"); !regexp.MustCompile(headline).MatchString(first) {
		t.Errorf("%q: expected %s", first, headline)
	}
	code, out, errs := runs(command(t, "trace", made[0]))
	if code != 0 || !strings.Contains(out, fmt.Sprint(": ", ranks, " ranks, ")) {
		t.Errorf("code %d: %s%s: expected %d ranks", code, out, errs, ranks)
	}
}

// byTorchrun starts ranks with the variables that torchrun sets, whose own store listens at MASTER_PORT.
func byTorchrun(t *testing.T, env []string, self string) (string, error) {
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer store.Close()
	var all [4]*exec.Cmd
	var said [4]bytes.Buffer
	for r := range all {
		c := exec.CommandContext(t.Context(), self)
		c.Env = append(append([]string{}, env...), "TORCHELASTIC_RUN_ID="+t.Name(), "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_USE_AGENT_STORE=True",
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", store.Addr().(*net.TCPAddr).Port), "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=0",
			fmt.Sprint("RANK=", r), fmt.Sprint("LOCAL_RANK=", r))
		c.Stdout, c.Stderr = &said[r], &said[r]
		if err := c.Start(); err != nil {
			return "", err
		}
		all[r] = c
	}
	text := ""
	for r, c := range all {
		if e := c.Wait(); e != nil {
			err = fmt.Errorf("rank %d: %w", r, e)
		}
		text += said[r].String()
	}
	return text, err
}

// holdsAllCalls compares a trace of 2 × 2 ranks with the calls that they have made.
func holdsAllCalls(t *testing.T, file string, calls int) {
	t.Helper()
	trace, err := traces.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(trace.Ranks) != 4 {
		t.Fatalf("%d ranks, expected 4", len(trace.Ranks))
	}
	for _, r := range trace.Ranks {
		n, joined := 0, 0
		for _, x := range r.Calls {
			if x.Comm == "world" && x.End > 0 && !x.Guess {
				n++
			}
		}
		for _, p := range r.Puts {
			if p.Comm == "world" && p.Bytes >= 4000 && p.Got > 0 && p.Peer == (r.Rank+2)%4 {
				joined++
			}
		}
		if n != calls || joined != calls || r.Lost != 0 {
			t.Errorf("rank %d: %d calls, %d puts that lead to waits, %d records lost: expected %d, as many, and 0", r.Rank, n, joined, r.Lost, calls)
		}
		if apart := r.Rank >= 2; (r.ClockError > 0) != apart {
			t.Errorf("rank %d: an error of its clock of %d ns", r.Rank, r.ClockError)
		}
	}
	if s := trace.Tell(); len(s.Late) == 0 || s.Late[0].Rank != 2 || s.Late[0].Median < 2e6 {
		t.Errorf("late: %+v: expected rank 2 by some 20 ms", s.Late)
	}
	perfettoAccepts(t, file)
}
