package scripts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gpuMachine is a machine on which gpu-test.sh runs, with stand-ins for what
// dist-gpu.sh packs.
type gpuMachine struct {
	smi bool     // nvidia-smi is there, and shows two GPUs
	env []string // of the script, and of the stand-ins
}

const (
	// The launcher notes its calls. As a rank on its own it plays the victim of a kill, or
	// one that notices.
	fakeRun = `echo "$*" >>"$STATE/calls"
row='{"collective":"allreduce","bytes":1024,"dtype":"f16","ranks":2,"algorithm":"a","graph":20,"registered":true,"time_us":2}'
case "${3:-}" in */compute-sanitizer) exec "${@:3}" ;; esac
case "${RANK:-}" in
1) echo $$ >"$STATE/victim"; exec sleep 60 ;;
0)
	until [ -s "$STATE/victim" ]; do sleep 0.02; done
	echo "$row"
	while kill -0 "$(cat "$STATE/victim")" 2>/dev/null; do sleep 0.02; done
	sleep "${LATE:-0}"
	echo "${LAST_WORDS:-rank 1 is gone}" >&2
	exit 1 ;;
esac
case "$*" in *"${HOLD:-nothing}"*) exec sleep 60 ;; esac
case "$*" in *"${BREAK:-nothing}"*) echo "mscclpp-run: it broke" >&2; exit 3 ;; esac
case "$*" in *"--format json"*) echo "$row" ;; esac`
	fakeTest = `[ -z "${RANK_PROGRAM:-}" ] || exec "$RANK_PROGRAM"
echo "--- PASS: TestOne (0.00s)"; echo "    x_test.go:7: needs wings"; echo "--- SKIP: TestTwo (0.00s)"
[ -z "${GPU_TEST_COSTS:-}" ] ||
	echo '{"cost":"abort check","ranks":2,"device":"a","bytes":1024,"time_us":2.5,"alone_us":1.25,"cost_us":1.25,"goal_us":0.02,"goal_kept":false}' >>"$GPU_TEST_COSTS"`
	// compute-sanitizer runs what it is given, and finds mistakes of the tool that BROKEN names.
	fakeSanitizer = `tool=$2
while [ "$1" != --error-exitcode ]; do shift; done
shift 2
"$@" || exit
if [ "$tool" = "${BLIND:-}" ]; then exit 0; fi
if [ "$tool" = "${BROKEN:-}" ]; then echo "========= ERROR SUMMARY: 3 errors"; exit 9; fi
echo "========= ERROR SUMMARY: 0 errors"`
	fakeTable = `echo "table of $(wc -l <"$3") rows"` // of GPUs that are no H200s
	fakeSMI   = `case "$*" in -L) echo "GPU 0: a"; echo "GPU 1: b" ;; *memory.used*noheader*) echo 1; echo 2 ;; esac`
)

// test runs the script and returns what it printed, the calls of the launcher, the
// folder of results and the exit code.
func (m gpuMachine) test(t *testing.T, args ...string) (out, calls, dir string, code int) {
	t.Helper()
	top, path, state := t.TempDir(), t.TempDir(), t.TempDir()
	dir = filepath.Join(t.TempDir(), "results")
	program := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("gpu-test.sh")
	if err != nil {
		t.Fatal(err)
	}
	program(filepath.Join(top, "gpu-test.sh"), strings.TrimPrefix(string(script), "#!/bin/bash\n"))
	program(filepath.Join(top, "bin/mscclpp-run"), fakeRun)
	program(filepath.Join(top, "bin/gpu-table"), fakeTable)
	program(filepath.Join(top, "bin/example-allreduce"), "exit 0")
	for _, name := range []string{"cuda.test", "proxy.test", "comm.test", "cudaipc.test", "devicetest.test", "actor/devicetest"} {
		program(filepath.Join(top, "tests", name), fakeTest)
	}
	if m.smi {
		program(filepath.Join(path, "nvidia-smi"), fakeSMI)
	}
	program(filepath.Join(path, "ldconfig"), "exit 0")
	program(filepath.Join(path, "python3"), "exit 1") // without packages
	c := exec.Command("bash", append([]string{filepath.Join(top, "gpu-test.sh"), "--out", dir}, args...)...)
	c.Env = append([]string{"PATH=" + path + ":" + os.Getenv("PATH"), "STATE=" + state, "TMPDIR=" + t.TempDir()}, m.env...)
	var all bytes.Buffer
	c.Stdout, c.Stderr = &all, &all
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	noted, _ := os.ReadFile(filepath.Join(state, "calls"))
	return all.String(), string(noted), dir, c.ProcessState.ExitCode()
}

func TestGPUSmoke(t *testing.T) {
	out, calls, dir, code := gpuMachine{smi: true}.test(t)
	if code != 0 || !strings.Contains(out, "8 steps, 0 failed, 0 skipped") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, want := range []string{"gpus     2, 2 ranks", "1 passed, 1 skipped", "1 needs wings", "nccl     not installed", "NCCL_NVLS_ENABLE=0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(calls, "--vs") || strings.Count(calls, "bench allreduce") != 2 {
		t.Errorf("calls:\n%s", calls)
	}
	var steps []struct{ Step, Outcome string }
	text, err := os.ReadFile(filepath.Join(dir, "steps.json"))
	if err = errors.Join(err, json.Unmarshal(text, &steps)); err != nil || len(steps) != 8 || steps[1].Step != "cuda" || steps[1].Outcome != "ok" {
		t.Errorf("%v, %v\n%s", err, steps, text)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 8 {
		t.Errorf("%d files, %v", len(files), err)
	}
}

func TestGPUStepThatFails(t *testing.T) {
	out, _, dir, code := gpuMachine{smi: true, env: []string{"BREAK=conform"}}.test(t)
	if code != 1 || !strings.Contains(out, "FAIL: exit code 3\n    | mscclpp-run: it broke\n") || !strings.Contains(out, "8 steps, 1 failed") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	listed, err := exec.Command("tar", "-tzf", filepath.Join(dir, "logs.tar.gz")).Output()
	if err != nil || !strings.Contains(string(listed), "conform-quick.err") {
		t.Errorf("logs: %v\n%s", err, listed)
	}
}

func TestGPUBudget(t *testing.T) {
	out, calls, _, code := gpuMachine{}.test(t, "--tier", "smoke,bench", "--budget", "2", "--ranks", "4")
	if code != 0 || strings.Contains(calls, "bench") || !strings.Contains(out, "skipped: the budget of 2 s is used up") || !strings.Contains(out, "4 ranks") {
		t.Errorf("exit code %d, calls %q\n%s", code, calls, out)
	}
}

// A step that the budget ends has not failed: it was not measured.
func TestGPUBudgetEndsAStep(t *testing.T) {
	out, _, _, code := gpuMachine{smi: true, env: []string{"HOLD=conform"}}.test(t, "--budget", "6")
	if code != 0 || !strings.Contains(out, "of at most 150 s, as the budget of 6 s is used up") || !strings.Contains(out, "0 failed") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// NCCL has no ranks that share a GPU.
func TestGPUShared(t *testing.T) {
	out, calls, _, code := gpuMachine{smi: true, env: []string{"MSCCLPP_NCCL_LIBRARY=/x/libnccl.so.2"}}.test(t, "--ranks", "4")
	if code != 0 || strings.Contains(calls, "--vs") || !strings.Contains(out, "which wants a GPU for each rank") {
		t.Errorf("exit code %d, calls %q\n%s", code, calls, out)
	}
}

// The tables are made of all processes, beside NCCL where it is.
func TestGPUBench(t *testing.T) {
	m := gpuMachine{smi: true, env: []string{"MSCCLPP_NCCL_LIBRARY=/x/libnccl.so.2", "NCCL_NVLS_ENABLE=1", "GPU_TEST_BYTES=1K:4K"}}
	out, calls, dir, code := m.test(t, "--tier", "bench")
	if code != 0 || !strings.Contains(out, "table of 11 rows") || !strings.Contains(out, "/x/libnccl.so.2; NCCL_NVLS_ENABLE=1") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if n := strings.Count(calls, "--graph 50,1 --vs nccl --format json"); n != 9 || strings.Count(calls, "--registered --bytes 1K:4K --factor 4 --graph 50,1") != 6 {
		t.Errorf("%d calls for the tables:\n%s", n, calls)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "results.jsonl")); err != nil || strings.Count(string(text), "\n") != 11 {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestGPUKill(t *testing.T) {
	for _, test := range []struct {
		env  []string
		want string
	}{
		{nil, "ok: 2 ranks, the others ended "},
		{[]string{"LAST_WORDS=something is wrong"}, "FAIL: rank 0 did not name rank 1"},
		{[]string{"LATE=2.2"}, "ms, expected 2000 at most"},
	} {
		out, calls, _, _ := gpuMachine{smi: true, env: test.env}.test(t, "--tier", "check")
		line := ""
		for _, l := range strings.Split(out, "\n") {
			if strings.HasPrefix(l, "kill-2 ") {
				line = l
			}
		}
		if !strings.Contains(line, test.want) || !strings.Contains(calls, "check --device cuda") {
			t.Errorf("%v: %q, want %q in\n%s", test.env, line, test.want, out)
		}
	}
}

// Each tool has a verdict for each program: one that fails by itself was not checked.
func TestGPUSanitize(t *testing.T) {
	tool := filepath.Join(t.TempDir(), "compute-sanitizer")
	if err := os.WriteFile(tool, []byte("#!/bin/bash\n"+fakeSanitizer+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		env  []string
		code int
		want []string
	}{
		{"clean", nil, 0, []string{
			"memcheck   primitives   clean: 1 ERROR SUMMARY: 0 errors", "synccheck  primitives   clean:", "racecheck  check        clean:",
			"memcheck   matrix       clean:", "racecheck  hosts        clean: 1 ERROR SUMMARY: 0 errors", "10 steps, 0 failed",
		}},
		{"mistakes", []string{"BROKEN=synccheck"}, 1, []string{
			"synccheck  primitives   MISTAKES: 1 ERROR SUMMARY: 3 errors", "synccheck  check        MISTAKES:", "synccheck  hosts        MISTAKES:", "racecheck  check        clean:", "10 steps, 3 failed",
		}},
		{"nothing was seen", []string{"BLIND=racecheck"}, 1, []string{
			"racecheck  primitives   NOT CHECKED: it printed no summary", "memcheck   check        clean:", "10 steps, 3 failed",
		}},
		{"the program fails", []string{"BREAK=bench"}, 1, []string{
			"memcheck   check        not finished (exit code 3): it printed no summary", "memcheck   primitives   clean:", "10 steps, 3 failed",
		}},
	} {
		m := gpuMachine{smi: true, env: test.env}
		out, calls, _, code := m.test(t, "--tier", "sanitize", "--sanitizer", tool)
		if code != test.code || !strings.Contains(calls, "check --device cuda --at-most 24") {
			t.Errorf("%s: exit code %d, calls:\n%s", test.name, code, calls)
		}
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", test.name, want, out)
			}
		}
	}
}

// Where the tool is missing that is said. It is a failure for a user who has named it.
func TestGPUWithoutSanitizer(t *testing.T) {
	if _, err := exec.LookPath("compute-sanitizer"); err == nil {
		t.Skip("needs a machine where compute-sanitizer is not installed")
	}
	if _, err := os.Stat("/usr/local/cuda/bin/compute-sanitizer"); err == nil {
		t.Skip("needs a machine where compute-sanitizer is not installed")
	}
	out, calls, _, code := gpuMachine{smi: true}.test(t, "--tier", "sanitize")
	if code != 0 || calls != "" || !strings.Contains(out, "skipped: compute-sanitizer is not installed") {
		t.Errorf("exit code %d, calls %q\n%s", code, calls, out)
	}
	out, calls, _, code = gpuMachine{smi: true}.test(t, "--tier", "sanitize", "--sanitizer", "/nowhere/tool")
	if code != 1 || calls != "" || !strings.Contains(out, "FAIL: /nowhere/tool is not there, or no program") {
		t.Errorf("named: exit code %d, calls %q\n%s", code, calls, out)
	}
}

// The costs are a short table, and lines of JSON.
func TestGPUCosts(t *testing.T) {
	out, calls, dir, code := gpuMachine{smi: true}.test(t, "--tier", "costs")
	if code != 0 || !strings.Contains(out, "6 steps, 0 failed") || !strings.Contains(calls, "--graph 50,1") {
		t.Errorf("exit code %d, calls %q\n%s", code, calls, out)
	}
	found := false
	for _, line := range strings.Split(out, "\n") {
		found = found || strings.Join(strings.Fields(line), " ") == "abort check 2 1024 - 2.500 1.250 1.250 - MISSED: 0.02"
	}
	if !found {
		t.Errorf("no row of the abort check in\n%s", out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "costs.jsonl"))
	if err != nil || strings.Count(string(text), "\n") != 5 {
		t.Errorf("%v: one line of each test, expected 5:\n%s", err, text)
	}
	for line := range strings.Lines(string(text)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
}

func TestGPUArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"--tier fast":             {"--tier", "fast"},
		"--ranks two":             {"--ranks", "two"},
		"--budget 1m":             {"--budget", "1m"},
		"--speed is unknown":      {"--speed", "1"},
		"--ranks without a value": {"--ranks"},
	} {
		out, calls, _, code := gpuMachine{}.test(t, args...)
		if code != 2 || calls != "" || !strings.Contains(out, want) {
			t.Errorf("%q: exit code %d, %q, want %q", args, code, out, want)
		}
	}
}
