package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ofOpenMPI are the variables of a rank of four that Open MPI has started.
func ofOpenMPI(rank string) []string {
	return []string{"OMPI_COMM_WORLD_RANK=" + rank, "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=" + rank, "OMPI_COMM_WORLD_LOCAL_SIZE=4"}
}

// A flag without effect in a rank that an engine made is named, once in a job.
func TestWithoutEffectInARank(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, []byte("launch:\n  tag_output: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	for name, c := range map[string]struct {
		args, env []string
		want      string // between the reason and the advice; "" no warning
	}{
		"nothing":        {nil, nil, ""},
		"flags":          {[]string{"--bind-to", "core", "--output-dir", dir, "--tag-output", "--timestamp", "--tee"}, nil, "--bind-to, --tag-output, --timestamp, --output-dir, --tee"},
		"more flags":     {[]string{"--linger", "3s", "--report-bindings", "--no-stdin", "--nnodes", "2", "--node-rank", "1"}, nil, "--linger, --report-bindings, --no-stdin, --nnodes, --node-rank"},
		"as it is":       {[]string{"--bind-to", "none", "--tag-output=false", "--grace", "9s"}, nil, ""},
		"a setting":      {[]string{"--set", "launch.bind=numa"}, nil, "--set launch.bind"},
		"a variable":     {nil, []string{"MSCCLPP_LAUNCH__TIMESTAMP=true"}, "MSCCLPP_LAUNCH__TIMESTAMP (launch.timestamp)"},
		"a file":         {[]string{"--config", file}, nil, file + ":2 (launch.tag_output)"},
		"another's part": {[]string{"--tee"}, ofOpenMPI("1"), ""},
		// The launcher around it has bound the rank already.
		"inside ours": {nil, []string{"MSCCLPP_LAUNCH__BIND=core", "MSCCLPP_LAUNCH_ID=ab", "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"}, ""},
	} {
		run := command(t, append(c.args, "echo", "ran")...)
		run.Env = append(append(run.Env, ofOpenMPI("0")...), c.env...)
		want := ""
		if c.want != "" {
			want = "mscclpp-run: warning: no effect, because Open MPI made the ranks: " + c.want + ": expected options of Open MPI, or one process of it for each host and -n here\n"
		}
		if code, out, errs := runs(run); code != 0 || out != "ran\n" || errs != want {
			t.Errorf("%s: code %d, %q, %q: expected %q", name, code, out, errs, want)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder for output was made")
	}
	run := command(t, "--bind-to", "core", "bench", "--help") // a verb in a rank
	run.Env = append(run.Env, ofOpenMPI("0")...)
	if code, out, errs := runs(run); code != 0 || !strings.Contains(out, "mscclpp-run bench") || !strings.Contains(errs, "no effect, because Open MPI made the ranks: --bind-to:") {
		t.Errorf("a verb: code %d, %s, %s", code, out, errs)
	}
}

// Where an engine made the ranks, flags say where they meet.
func TestMeetingPointOfARank(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, "n0:7"},
		{[]string{"--master-addr", "h"}, "h:7"},
		{[]string{"--master-port", "8"}, "n0:8"},
		{[]string{"--master-addr", "[fd00::1]"}, "fd00::1:7"},
		{[]string{"--rendezvous", "h:9"}, "h:9"},
	} {
		run := command(t, append(c.flags, "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT")...)
		run.Env = append(append(run.Env, "MASTER_ADDR=n0", "MASTER_PORT=7"), ofOpenMPI("2")...)
		if code, out, errs := runs(run); code != 0 || out != c.want+"\n" || errs != "" {
			t.Errorf("%v: code %d, %q, %q: expected %s", c.flags, code, out, errs, c.want)
		}
	}
	// A verb in a rank of two hosts: no rank 0 listens where the flag says.
	run := command(t, "--rendezvous", "127.0.0.1:1", "--set", "plugins.embed=shm", "--set", "bootstrap.timeout=1s", "check")
	run.Env = append(run.Env, "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1")
	if code, _, errs := runs(run); code == 0 || !strings.Contains(errs, "127.0.0.1:1") {
		t.Errorf("a verb: code %d, %s: expected an error about the meeting point", code, errs)
	}
}

// A mistake in a flag that only a rank can find is blamed on the flag, however the rank
// came to be one.
func TestMistakeInAFlagThatARankFinds(t *testing.T) {
	args := []string{"--set", "plugins.embed=shm", "--set", "transport.shm.nosuch=1", "check"}
	for name, run := range map[string]func() (int, string, string){
		"a rank of ours": func() (int, string, string) { return runs(command(t, append([]string{"-n", "1"}, args...)...)) },
		"of an engine": func() (int, string, string) {
			c := command(t, args...)
			c.Env = append(c.Env, "PMI_RANK=0", "PMI_SIZE=1")
			return runs(c)
		},
	} {
		if code, _, errs := run(); code != 1 || !strings.HasPrefix(errs, "mscclpp-run: --set (MSCCLPP_TRANSPORT__SHM__NOSUCH): transport.shm.nosuch: ") {
			t.Errorf("%s: code %d, %s: expected an error about --set", name, code, errs)
		}
	}
}
