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

// oursTakes is our side that prints what it took.
func oursTakes(us float64) [][]string {
	return [][]string{sh("echo '" + line("allreduce", 1024, us) + "'")}
}

func theirsTakes(us float64) [][]string {
	return [][]string{sh("echo '" + theirs(line("allreduce", 1024, us)) + "'")}
}

// one is a table of one point.
var one = Table{Name: "x", Turns: [][]Key{{{"allreduce", 1024}}}}

// folder has raw output of a table called x.
func folder(t *testing.T, raw string) *Runner {
	t.Helper()
	r := &Runner{Out: t.TempDir(), Repetitions: 3}
	put(t, r, "x.jsonl", raw)
	return r
}

func put(t *testing.T, r *Runner, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.Out, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, r *Runner, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Out, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// known has the facts that a command may keep in machine.json.
type known struct {
	Machine
	Program string   `json:"program"`
	Tables  []string `json:"tables,omitempty"`
}

// The summary of a run is made from the folder, so that one made later is the same.
func TestRun(t *testing.T) {
	r, _ := runner(t)
	measured := known{Program: "peer 1.0", Tables: []string{"x"}}
	measure := func() error { return r.Begin(&measured) }
	fill := func(k *known, err error) func(io.Writer) (int, error) {
		return func(w io.Writer) (int, error) {
			fmt.Fprintf(w, "%s, %s, %d runs of %q\n", &k.Machine, k.Program, k.Repetitions, k.Tables)
			return 2, err
		}
	}
	if missed, err := r.Run(&measured, measure, fill(&measured, nil)); err != nil || missed != 2 {
		t.Fatalf("%d, %v", missed, err)
	}
	first := read(t, r, "README.md")
	if !strings.Contains(first, " CPUs") || !strings.Contains(first, `, peer 1.0, 3 runs of ["x"]`) {
		t.Errorf("%q", first)
	}
	var again known
	r.Again, r.Repetitions = true, 0
	nothing := func() error { t.Error("it measures"); return nil }
	if missed, err := r.Run(&again, nothing, fill(&again, nil)); err != nil || missed != 2 || read(t, r, "README.md") != first {
		t.Errorf("%d, %v, %q: expected the same again, %q", missed, err, read(t, r, "README.md"), first)
	}
	why := errors.New("refused")
	if missed, err := r.Run(&again, nothing, fill(&known{}, why)); !errors.Is(err, why) || missed != 0 || read(t, r, "README.md") != first {
		t.Errorf("%d, %v, and the summary is %q: expected the earlier one", missed, err, read(t, r, "README.md"))
	}
	r.Again = false
	if _, err := r.Run(&again, func() error { return why }, fill(&again, nil)); !errors.Is(err, why) || read(t, r, "README.md") != first {
		t.Errorf("%v: expected what ended the measurement", err)
	}
	if files, err := os.ReadDir(r.Out); err != nil || len(files) != 2 {
		t.Errorf("%v, %v: expected machine.json and README.md alone", files, err)
	}
}

func TestFactsThatAreMissing(t *testing.T) {
	whole := `{"date":"2026-01-02","cpus":2,"linux":"6.1","load_average":0.5,"repetitions":3,"program":"x"}`
	for want, text := range map[string]string{
		"":                                 "" + whole,
		`machine.json: no "linux"`:         strings.Replace(whole, `"linux":"6.1",`, "", 1),
		`machine.json: no "program"`:       strings.Replace(whole, `,"program":"x"`, "", 1),
		`unknown field "kernel"`:           strings.Replace(whole, "linux", "kernel", 1),
		"machine.json: 0 repetitions":      strings.Replace(whole, ":3", ":0", 1),
		"unexpected EOF":                   whole[:40],
		"facts of the run: EOF":            " ",
		`machine.json: expected a JSON ob`: whole + whole,
	} {
		r := &Runner{Out: t.TempDir(), Again: true}
		put(t, r, "machine.json", text)
		put(t, r, "README.md", "of an earlier run")
		_, err := r.Run(&known{}, nil, func(io.Writer) (int, error) { return 0, nil })
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || read(t, r, "README.md") != "of an earlier run") {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
	r := &Runner{Out: t.TempDir(), Again: true}
	if _, err := r.Run(&known{}, nil, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "machine.json: no such file or directory: expected the facts of the run") {
		t.Errorf("no machine.json: %v", err)
	}
}

func TestBeginRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, bad := range map[string]*Runner{
		"0 repetitions: expected 1 or more": {Out: t.TempDir()},
		"not a directory":                   {Out: filepath.Join(file, "below"), Repetitions: 1},
	} {
		if err := bad.Begin(&known{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// Scripts can distinguish missed targets from a comparison that failed.
func TestExitCodes(t *testing.T) {
	const variable = "COMPARE_EXIT"
	runs := map[string]func(context.Context) (int, error){
		"met":    func(context.Context) (int, error) { return 0, nil },
		"one":    func(context.Context) (int, error) { return 1, nil },
		"three":  func(context.Context) (int, error) { return 3, nil },
		"failed": func(context.Context) (int, error) { return 3, errors.New("no such device") },
	}
	if run := runs[os.Getenv(variable)]; run != nil {
		(&Runner{Out: "folder"}).Main("compare-x", run)
		return
	}
	for how, want := range map[string]string{
		"met": "PASS\n", "one": "exit status 1\ncompare-x: 1 target missed, see folder/README.md\n",
		"three": "exit status 1\ncompare-x: 3 targets missed, see", "failed": "exit status 2\ncompare-x: no such device\n",
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
	table := one
	table.Sound = func(theirs Times) error {
		if judged++; len(theirs[Key{"allreduce", 1024}]) != judged {
			t.Errorf("after %d runs they have %v", judged, theirs)
		}
		return nil
	}
	if err := r.InTurn(t.Context(), table, func(turn int) (ours, theirs [][]string) {
		asked++
		return oursTakes(1), theirsTakes(2)
	}); err != nil || asked != 3 || judged != 3 {
		t.Errorf("%v, turns of %d runs, %d judged", err, asked, judged)
	}
	if got := log.String(); got != "x allreduce, run 1 of 3\nx allreduce, run 2 of 3\nx allreduce, run 3 of 3\n" {
		t.Errorf("log %q", got)
	}
	lines, err := r.Read(one, 3)
	if err != nil || len(lines) != 1 || lines[0].Ratio != 0.5 {
		t.Errorf("%v, %v", lines, err)
	}
	slow := one
	slow.Sound = func(Times) error { return errors.New("slow path") }
	if _, err := r.Read(slow, 3); err == nil || !strings.Contains(err.Error(), "x.jsonl: slow path") {
		t.Errorf("%v: what is refused while measuring is refused later too", err)
	}
}

// An error that ends a comparison is returned, and the raw output so far stays.
func TestInTurnEnds(t *testing.T) {
	r, _ := runner(t)
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		t.Fatal(err)
	}
	slow := one
	slow.Sound = func(Times) error { return errors.New("slow path") }
	for want, theirs := range map[string][][]string{
		"slow path":                    theirsTakes(9),
		"exit status 3\nout\nrank 1":   {sh("echo out; echo rank 1 was killed >&2; exit 3")},
		"expected a JSON object":       {sh("echo good day")},
		"[true]:1: the end, after 0":   {{"true"}},
		"no such file":                 {{"/nonexistent/mscclpp-run"}},
		"expected allreduce of 1024 b": oursTakes(9), // not the other side
	} {
		err := r.InTurn(t.Context(), slow, func(int) ([][]string, [][]string) { return oursTakes(1), theirs })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
		if raw := read(t, r, "x.jsonl"); !strings.HasPrefix(raw, line("allreduce", 1024, 1)) {
			t.Errorf("raw output %q: expected that of the first side", raw)
		}
	}
	r.Out = "/nonexistent"
	if err := r.InTurn(t.Context(), one, nil); !errors.Is(err, os.ErrNotExist) {
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

// Results are published: the paths of the machine that measured them are not.
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
	if _, err := time.Parse("2006-01-02", m.Date); err != nil || m.CPUs < 1 || m.Load == "" || m.Kernel == "" || strings.Contains(m.Kernel, "-") {
		t.Errorf("%+v, %v", m, err)
	}
	text := "processor\t: 0\nmodel name\t: Some CPU : fast\n"
	for key, want := range map[string]string{"model name": "Some CPU : fast", "model": ""} {
		if got := field(text, key); got != want {
			t.Errorf("%s is %q, expected %q", key, got, want)
		}
	}
}
