package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const recordedMachines = "../../framework/topo/testdata/"

func TestTopoVerb(t *testing.T) {
	code, out, errs := runs(command(t, "topo", "--format", "json"))
	if code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("code %d, not JSON: %s, %s", code, out, errs)
	}
	if code, out, errs := runs(command(t, "topo")); code != 0 || !strings.Contains(out, "GPU") {
		t.Errorf("code %d, %q: want a word about GPUs: those found, or why none; %s", code, out, errs)
	}
	if code, out, errs := runs(command(t, "topo", "--record")); code != 0 || !strings.Contains(out, "cpu") {
		t.Errorf("code %d, %.200q, %s", code, out, errs)
	}
	if code, _, errs := runs(command(t, "topo", "--format", "dot")); code != 2 || !strings.Contains(errs, "expected table or json") {
		t.Errorf("code %d, %s", code, errs)
	}
}

// A recorded machine is shown as the tables and drawings of package topo have it.
func TestTopoOfRecording(t *testing.T) {
	for _, name := range []string{"h200", "a10"} {
		drawing := filepath.Join(t.TempDir(), name+".svg")
		code, out, errs := runs(command(t, "topo", "--from", recordedMachines+name+".machine", "--svg", drawing))
		if code != 0 {
			t.Fatalf("%s: code %d, %s", name, code, errs)
		}
		for file, got := range map[string]string{name + ".table": out, name + ".svg": read(t, drawing)} {
			if want := read(t, recordedMachines+file); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
			}
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(drawing), ".topo-*")); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
	code, out, errs := runs(command(t, "topo", "--from", recordedMachines+"dgx.machine", "--svg", "-"))
	if code != 0 || xml.Unmarshal([]byte(out), new(struct{})) != nil || !strings.Contains(out, "NVSwitch") {
		t.Errorf("code %d, %.200q, %s: want a drawing alone", code, out, errs)
	}
	code, out, errs = runs(command(t, "topo", "--from", recordedMachines+"mig.machine", "--record"))
	if want := read(t, recordedMachines+"mig.machine"); code != 0 || !strings.Contains(out, "gpus/01 = ") || !strings.Contains(want, lineOf(out, "gpus/01 = ")) {
		t.Errorf("code %d, %s: a recording of a recording differs: %s", code, errs, out)
	}
}

func TestTopoRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("nothing of the kind\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no such file":       {"--from", empty + "-missing"},
		"it is no recording": {"--from", empty},
		"--svg":              {"--svg", filepath.Join(empty, "x.svg")},
	} {
		if code, _, errs := runs(command(t, append([]string{"topo"}, args...)...)); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("topo %v: code %d, %s: want %q", args, code, errs, want)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lineOf is the line of text that begins with prefix.
func lineOf(text, prefix string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}
