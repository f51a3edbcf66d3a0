package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func runner(t *testing.T) (*Runner, *bytes.Buffer) {
	var log bytes.Buffer
	return &Runner{Out: filepath.Join(t.TempDir(), "below", "results"), Repetitions: 3, Log: &log}, &log
}

func sh(text string) []string { return []string{"sh", "-c", text} }

// says is a side that prints what it took.
func says(us float64) [][]string { return [][]string{sh("echo '" + line("allreduce", 1024, us) + "'")} }

func readme(t *testing.T, r *Runner) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Out, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSummarize(t *testing.T) {
	r, _ := runner(t)
	fill := func(text string, broken int, err error) func(io.Writer) (int, error) {
		return func(w io.Writer) (int, error) {
			fmt.Fprint(w, text)
			return broken, err
		}
	}
	if broken, err := r.Summarize(fill("first", 2, nil)); err != nil || broken != 2 || readme(t, r) != "first" {
		t.Errorf("%d, %v, %q", broken, err, readme(t, r))
	}
	why := errors.New("refused")
	if broken, err := r.Summarize(fill("half", 1, why)); !errors.Is(err, why) || broken != 0 || readme(t, r) != "first" {
		t.Errorf("%d, %v, and the summary is %q: expected the earlier one", broken, err, readme(t, r))
	}
	for want, bad := range map[string]*Runner{
		"0 repetitions: expected 1 or more": {Out: t.TempDir()},
		"not a directory":                   {Out: filepath.Join(r.Out, "README.md", "below"), Repetitions: 1},
	} {
		if _, err := bad.Summarize(fill("", 0, nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// Scripts tell promises that are not kept from a comparison that failed.
func TestExitCodes(t *testing.T) {
	const variable = "COMPARE_EXIT"
	runs := map[string]func(context.Context) (int, error){
		"kept":   func(context.Context) (int, error) { return 0, nil },
		"broken": func(context.Context) (int, error) { return 3, nil },
		"failed": func(context.Context) (int, error) { return 3, errors.New("no such device") },
	}
	if run := runs[os.Getenv(variable)]; run != nil {
		(&Runner{Out: "folder"}).Main("compare-x", run)
		return
	}
	for how, want := range map[string]string{
		"kept": "PASS\n", "broken": "exit status 1\ncompare-x: 3 promises not kept, see folder/README.md\n", "failed": "exit status 2\ncompare-x: no such device\n",
	} {
		t.Setenv(variable, how)
		out, err := Output(t.Context(), []string{os.Args[0], "-test.run=^TestExitCodes$"})
		if got := fmt.Sprint(string(out), err); !strings.Contains(got, want) {
			t.Errorf("%s: %s, expected %q", how, got, want)
		}
	}
}

func TestInTurn(t *testing.T) {
	r, log := runner(t)
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	asked, judged := 0, 0
	lines, err := r.InTurn(t.Context(), "x", func() []Turn {
		asked++
		return []Turn{{Name: "turn", Ours: says(1), Theirs: says(2)}}
	}, func(theirs Times) error {
		if judged++; len(theirs[Key{"allreduce", 1024}]) != judged {
			t.Errorf("after %d runs they have %v", judged, theirs)
		}
		return nil
	})
	if err != nil || asked != 3 || judged != 3 || len(lines) != 1 || lines[0].Ratio != 0.5 {
		t.Errorf("%v, %v, turns of %d runs, %d judged", lines, err, asked, judged)
	}
	if got := log.String(); got != "turn, run 1 of 3\nturn, run 2 of 3\nturn, run 3 of 3\n" {
		t.Errorf("log %q", got)
	}
	raw, err := os.ReadFile(filepath.Join(r.Out, "x.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(raw)); len(got) != 6 || got[0]+"\n" != line("allreduce", 1024, 1) || got[0] != got[2] || got[1]+"\n" != line("allreduce", 1024, 2) {
		t.Errorf("raw output %q: expected ours and theirs in turn", raw)
	}
}

// What ends a comparison is told, with the raw output so far.
func TestInTurnEnds(t *testing.T) {
	r, _ := runner(t)
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	for want, turn := range map[string]Turn{
		"slow path":                       {Ours: says(1), Theirs: says(9)},
		"exit status 3\nout\nrank 1":      {Ours: says(1), Theirs: [][]string{sh("echo out; echo rank 1 was killed >&2; exit 3")}},
		"expected a JSON object a line":   {Ours: says(1), Theirs: [][]string{sh("echo good day")}},
		"[true]: no result in the output": {Ours: says(1), Theirs: [][]string{{"true"}}},
		"no such file":                    {Ours: says(1), Theirs: [][]string{{"/nonexistent/mscclpp-run"}}},
	} {
		_, err := r.InTurn(t.Context(), "x", func() []Turn { return []Turn{turn} }, func(Times) error { return errors.New("slow path") })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
		if raw, err := os.ReadFile(filepath.Join(r.Out, "x.jsonl")); err != nil || !strings.HasPrefix(string(raw), line("allreduce", 1024, 1)) {
			t.Errorf("raw output %q, %v: expected that of the first side", raw, err)
		}
	}
	r.Out = "/nonexistent"
	if _, err := r.InTurn(t.Context(), "x", func() []Turn { return nil }, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("raw output without a folder: %v", err)
	}
}

// Commands of a side meet each other, and what they print stays in their order.
func TestOutputOfSeveral(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if out, err := Output(t.Context(), []string{"mkfifo", pipe}); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	out, err := Output(t.Context(), sh("echo first; echo hello >"+pipe), sh("cat "+pipe))
	if err != nil || string(out) != "first\nhello\n" {
		t.Errorf("%q, %v", out, err)
	}
	start := time.Now()
	if _, err := Output(t.Context(), sh("exit 4"), sh("exec sleep 60")); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("%v, expected the status of the first", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("the second went on for %v", took)
	}
}

// A launcher is asked to end before it is killed, so that its ranks end with it.
func TestInterruptedSideMayCleanUp(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "cleaned")
	slow := sh(`trap 'touch "` + mark + `"; exit 0' TERM; echo started >"` + mark + `.started"; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted by the test")
	go func() {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(mark + ".started"); err == nil {
				break
			}
		}
		cancel(why)
	}()
	if _, err := Output(ctx, slow); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("it could not clean up: %v", err)
	}
}

// Results are published: where they were taken is nobody's business.
func TestPathsAreTakenOut(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	in := `{"transport_source":"plugin ` + here + `/bin/plugins/p (pid 1)","cwd":"` + here + `er/x"}`
	want := `{"transport_source":"plugin bin/plugins/p (pid 1)","cwd":"` + here + `er/x"}`
	if got := string(portable([]byte(in))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestHere(t *testing.T) {
	m := Here()
	if _, err := time.Parse("2006-01-02", m.Date); err != nil || m.CPUs < 1 || m.CPU == "" || m.Kernel == "" || strings.Contains(m.Kernel, "-") {
		t.Errorf("%+v, %v", m, err)
	}
	text := "processor\t: 0\nmodel name\t: Some CPU : fast\n"
	for key, want := range map[string]string{"model name": "Some CPU : fast", "model": "unknown"} {
		if got := field(text, key); got != want {
			t.Errorf("%s is %q, expected %q", key, got, want)
		}
	}
}
