package plans

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
)

const data = "../../../../plan/verify/testdata/"

// run runs the verb, and returns its output and exit code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	c := Command(&verb.Env{Stdout: &out, Stderr: &out})
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.Execute()
	var ended *verb.Error
	switch {
	case err == nil:
		return out.String(), 0
	case errors.As(err, &ended):
		return out.String() + ended.Error(), ended.Code
	}
	return out.String() + err.Error(), 1
}

func TestCheck(t *testing.T) {
	right, race, refused := data+"right/allgather_put.json", data+"race/alltoall_relaxed.json", data+"absent.json"
	if out, code := run(t, "check", right); code != 0 || !strings.HasPrefix(out, right+": right: every rank has the result of allgather") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if out, code := run(t, "check", data+"right/allgather_relaxed_end.json"); code != 0 || !strings.Contains(out, "\n\tnote: rank ") {
		t.Errorf("exit code %d, %s, expected a note", code, out)
	}
	out, code := run(t, "check", "--format", "json", right, race, refused)
	if code != 1 {
		t.Errorf("exit code %d, expected 1", code)
	}
	want := []struct {
		file, verdict string
		ranks         int
	}{{right, "right", 2}, {race, "race", 2}, {refused, "refused", 0}}
	lines := strings.Split(out, "\n")
	for i, w := range want {
		var got struct {
			File, Verdict, Reason string
			Ranks                 int
		}
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatalf("%q: %v", lines[i], err)
		}
		if got.File != w.file || got.Verdict != w.verdict || got.Ranks != w.ranks || got.Reason == "" {
			t.Errorf("got %+v, expected %+v", got, w)
		}
	}
}

func TestShow(t *testing.T) {
	for _, x := range []struct{ file, want string }{
		{"right/allgather_put.json", "0      5   put        o[0:1] → o@1[0:1]  memory"},
		{"right/allgather_put.json", "rank 1: chunks: 1 of input, 2 of output, 0 of scratch memory"},
		{"right/allgather_put.json", "1   rlxsignal                     memory 0→0"},
		{"right/allreduce_switch.json", "glres      sum i@0,1[0:1] → i@0,1[0:1]  switch"},
		{"right/alltoall_semaphore.json", "1      0   sem_acquire  semaphores 0"},
		{"right/groups_with_barrier.json", "2      1   barrier  barrier 0 of 3 blocks"},
		{"right/groups_with_barrier.json", "i[0:2] → s[0:2], slice 1 of 3"},
		{"right/pipeline.json", "0.1  nop"},
		{"right/pipeline.json", "1 chunks in units of 48 bytes"},
		{"right/sendrecv_port_flush.json", "flush                      port 1→1"},
	} {
		if out, code := run(t, "show", data+x.file); code != 0 || !strings.Contains(out, x.want) {
			t.Errorf("%s: exit code %d, expected in it %q:\n%s", x.file, code, x.want, out)
		}
	}
	if out, _ := run(t, "show", data+"right/allgather_put.json", "--rank", "1"); strings.Contains(out, "rank 0:") || !strings.Contains(out, "rank 1:") {
		t.Errorf("got %s, expected rank 1 alone", out)
	}
}

// TestDrawing draws all plans. Each drawing is XML, with a box for each event and the operation in words.
func TestDrawing(t *testing.T) {
	files, err := filepath.Glob(data + "*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d plans, %v", len(files), err)
	}
	for _, file := range files {
		if strings.Contains(file, "/refused/") {
			continue
		}
		name := filepath.Join(t.TempDir(), "x.svg")
		hangs := strings.Contains(file, "/hang/") && !strings.Contains(file, "second_launch")
		if out, code := run(t, "show", file, "--svg", name); (code != 0) != hangs {
			t.Errorf("%s: exit code %d, %s", file, code, out)
		}
		text, err := os.ReadFile(name)
		if err != nil && !hangs {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(text, new(struct{})); err != nil && !hangs {
			t.Errorf("%s: %v", file, err)
		}
		out, _ := run(t, "show", file, "--trace")
		written := filepath.Join(t.TempDir(), "x.json")
		_, _ = run(t, "show", file, "--trace="+written)
		if text, err := os.ReadFile(written); !hangs && string(text) != out {
			t.Errorf("%s: %v: expected in the file the %d bytes that are printed, not %d", file, err, len(out), len(text))
		}
		if events, boxes := strings.Count(out, `{"event":`), strings.Count(string(text), "<title>"); events != boxes {
			t.Errorf("%s: %d boxes, expected one for each of %d events", file, boxes, events)
		}
	}
	out, code := run(t, "show", data+"right/sendrecv_port_flushed.json", "--svg", "-", "--rank", "0,1")
	for _, want := range []string{"<title>rank 1, block 0, operation 3 (pwsf): i[0:1] → o@2[0:1] port 1→2</title>", ">port 1 → 2</text>", `class="arrow"`, `class="wait"`} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, expected in it %q:\n%s", code, want, out)
		}
	}
	if strings.Contains(out, "rank 2</text>") {
		t.Error("rank 2 is drawn too")
	}
	if out, code := run(t, "show", data+"right/pipeline.json", "--svg", t.TempDir()+"/absent/x.svg"); code != 1 || !strings.Contains(out, "--svg") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

func TestMistakes(t *testing.T) {
	for _, x := range []struct {
		args, want string
		code       int
	}{
		{"", "expected a command", 2},
		{"chek", `unknown command "chek"`, 2},
		{"check", "expected files", 2},
		{"check --format yaml " + data, "expected table or json", 2},
		{"show", "0 files: expected one", 2},
		{"show absent.json", "absent.json", 1},
		{"show --rank 2 " + data + "right/allgather_put.json", "the plan has ranks 0 to 1", 2},
	} {
		if out, code := run(t, strings.Fields(x.args)...); code != x.code || !strings.Contains(out, x.want) {
			t.Errorf("plan %s: exit code %d, %q; expected %d and %q", x.args, code, out, x.code, x.want)
		}
	}
}
