package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/report"
)

// A plan that was compiled runs, is measured, and is chosen by configuration; a wrong one is refused, and so is a size.
func TestPlansInAJob(t *testing.T) {
	i := install(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "plan.json")
	run := func(args ...string) (string, string, int) { return i.run(t, args...) }
	if out, errs, code := run("plan", "compile", "allreduce-1pa", "--ranks", "2", "--output", file); code != 0 {
		t.Fatalf("compile: %d, %s%s", code, out, errs)
	}
	out, errs, code := run("-n", "2", "plan", "run", file, "--bytes", "4K", "--check", "--format", "json")
	var row report.Row
	if err := json.Unmarshal([]byte(out), &row); err != nil || code != 0 || row.Algorithm != "allreduce-1pa-1x2-4blocks" || row.Bytes != 4096 || row.Errors == nil || *row.Errors != 0 {
		t.Errorf("run: %d, %v, %+v, %s", code, err, row, errs)
	}
	out, errs, code = run("-n", "2", "plan", "bench", file, "--bytes", "100:5K", "--iters", "2", "--calls", "1", "--check", "--format", "json")
	if rows := strings.Count(out, "\n"); code != 0 || rows != 6 || strings.Count(out, `"errors":0`) != 6 || !strings.Contains(out, `"bytes":128,`) {
		t.Errorf("bench: %d, %s%s", code, out, errs)
	}
	second := filepath.Join(dir, "second.json")
	if out, errs, code := run("plan", "compile", "allgather-packets", "--ranks", "2", "--output", second); code != 0 {
		t.Fatalf("compile: %d, %s%s", code, out, errs)
	}
	out, errs, code = run("-n", "2", "plan", "run", file, second, file, "--packets", "8", "--bytes", "8K", "--check", "--format", "json")
	if code != 0 || strings.Count(out, `"errors":0`) != 3 || !strings.Contains(out, `"algorithm":"allreduce-1pa-1x2-4blocks (3)"`) {
		t.Errorf("several files: %d, %s%s", code, out, errs)
	}
	out, errs, code = run("-n", "2", "plan", "bench", file, "--vs", "allpair_ll16", "--fastest", "--bytes", "1K", "--iters", "3", "--format", "json")
	row = report.Row{}
	if err := json.Unmarshal([]byte(out), &row); err != nil || code != 0 || row.Peer != "allpair_ll16" || row.PeerTimeUS == nil || *row.PeerTimeUS <= 0 {
		t.Errorf("beside an algorithm: %d, %v, %+v, %s", code, err, row, errs)
	}
	config := filepath.Join(dir, "config.yaml")
	text := "collectives:\n  table: [{collective: allreduce, max_bytes: 1024, algorithm: allpair_ll8}]\n  plans: [{path: " + file + "}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for bytes, want := range map[string]string{"1024": "allpair_ll8", "2048": "allreduce-1pa-1x2-4blocks"} {
		if got := algorithmOf(t, i, "-n", "2", "--config", config, "bench", "allreduce", "--bytes", bytes, "--iters", "1", "--calls", "1", "--format", "json"); got != want {
			t.Errorf("%s bytes: %s, expected %s", bytes, got, want)
		}
	}
	wrong, err := filepath.Abs("../../plan/verify/testdata/race/packets_rewritten.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args  []string
		code  int
		words string
	}{
		{[]string{"-n", "2", "plan", "run", wrong}, 2, "the plan is not right, but race"},
		{[]string{"-n", "3", "plan", "run", file}, 2, "is for 2 ranks: expected one for 3"},
		{[]string{"-n", "2", "plan", "run", file, "--bytes", "1000"}, 2, "expected a multiple of 32, as 992 or 1024"},
		{[]string{"-n", "2", "plan", "run", file + "x"}, 2, "no such file"},
		{[]string{"-n", "2", "plan", "run", file, "--packets", "4"}, 2, "--packets 4: expected 8 or 16"},
		{[]string{"-n", "2", "plan", "bench", file, "--vs", "push_ll", "--bytes", "1K"}, 2, "--vs push_ll: these ranks have no such algorithm for allreduce: expected auto, or one of allpair_ll8, "},
		{[]string{"-n", "2", "plan", "run"}, 2, "expected a file"},
		{[]string{"-n", "2", "--set", "collectives.plans=[{path: " + wrong + "}]", "bench", "allreduce"}, 1, "the plan is not right, but race"},
	} {
		if _, errs, code := run(x.args...); code != x.code || !strings.Contains(errs, x.words) {
			t.Errorf("%v: code %d, %s; expected %d and %q", x.args, code, errs, x.code, x.words)
		}
	}
}

// network has the programs of this test find the plugin for tcp as well.
func network(t *testing.T) {
	t.Helper()
	dir, err := networkPlugin()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MSCCLPP_PLUGINS__DIRS", dir)
}

// networkPlugin builds it once, beside the programs of all tests, which TestMain removes.
var networkPlugin = sync.OnceValues(func() (string, error) {
	top, err := programs()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(top, "network")
	if text, err := exec.Command("go", "build", "-o", filepath.Join(dir, "mscclpp-transport-tcp"), "../../transports/tcp/cmd/mscclpp-transport-tcp").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, text)
	}
	return dir, nil
})

// Plans run over hosts: memory inside of them and ports of tcp between them. A channel that no transport carries is named.
func TestPlansOverHosts(t *testing.T) {
	i := install(t)
	network(t)
	start := append([]string{"-n", "4", "--log-level", "none"}, onHosts(i.launcher)...)
	var files []string
	for name, perHost := range map[string]string{"allreduce-hierarchical-packets": "2", "allreduce-hierarchical-chunks": "2", "alltoall": "2", "allreduce-2pa-ports": "1"} {
		files = append(files, planWork(t, i, name, "--per-host", perHost)[2])
	}
	for _, packets := range []string{"8", "16"} {
		args := append(append(start, "plan", "run"), files...)
		out, errs, code := i.run(t, append(args, "--bytes", "64K", "--check", "--in-place=both", "--packets", packets, "--format", "json")...)
		if code != 0 || strings.Count(out, `"errors":0`) != 8 || !strings.Contains(out, `"transport":"shm+tcp"`) {
			t.Errorf("packets of %s: %d, %s%s", packets, code, out, errs)
		}
	}
	memory := planWork(t, i, "allreduce-1pa")[2]
	_, errs, code := i.run(t, append(start, "plan", "run", memory)...)
	if code == 0 || !strings.Contains(errs, "memory channel 1 joins ranks 0 and 2, which do not share memory") {
		t.Errorf("a memory channel between hosts: %d, %s", code, errs)
	}
	start[5] = "shm"
	_, errs, code = i.run(t, append(start, "plan", "run", planWork(t, i, "allreduce-2pa-ports", "--per-host", "1")[2])...)
	if code == 0 || !strings.Contains(errs, "no common transport: ") || !strings.Contains(errs, "host:host-1") {
		t.Errorf("ports without a network: %d, %s", code, errs)
	}
}

// A job on several hosts needs no list of transports: tcp joins them.
func TestHostsWithoutTransports(t *testing.T) {
	i := install(t)
	network(t)
	start := append([]string{"-n", "4", "--log-level", "info"}, onHosts(i.launcher)[2:]...)
	out, errs, code := i.run(t, append(start, "bench", "allreduce", "--device", "host", "--bytes", "64K", "--check", "--format", "json")...)
	if code != 0 || !strings.Contains(out, `"transport":"shm+tcp"`) || !strings.Contains(out, `"errors":0`) || !strings.Contains(errs, "tcp joins them, since transports names none") {
		t.Errorf("without a list: %d, %s%s", code, out, errs)
	}
}
