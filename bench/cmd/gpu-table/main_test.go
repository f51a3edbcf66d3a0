package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	oneK = `{"collective":"allreduce","bytes":1024,"dtype":"f16","ranks":4,"algorithm":"a","graph":20,"registered":true,"time_us":2,"peer":"nccl 2.28.3","peer_time_us":3,"speedup":1.5}`
	oneM = `{"collective":"allreduce","bytes":1048576,"dtype":"f16","ranks":4,"algorithm":"b","graph":20,"registered":true,"time_us":8,"peer":"nccl 2.28.3","peer_time_us":9,"speedup":1.1}`
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesAreOneMeasurement(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-format", "markdown", write(t, "a", oneK), write(t, "b", oneM)}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| 1K | **2.00**") || !strings.Contains(out.String(), "| 1M | **8.00**") {
		t.Errorf("not both in\n%s", out.String())
	}
	out.Reset()
	if err := run([]string{write(t, "a", oneK)}, &out); err != nil || !strings.Contains(out.String(), "allreduce         1K |     2.00") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}

func TestIntoAFile(t *testing.T) {
	doc := write(t, "doc.md", "# Title\n\nText.\n")
	for range 2 { // the second time between the marks of the first
		if err := run([]string{"-into", doc, write(t, "a", oneK)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	text, _ := os.ReadFile(doc)
	if strings.Count(string(text), "| 1K |") != 1 || !strings.HasPrefix(string(text), "# Title\n\nText.\n\n"+first) || !strings.HasSuffix(string(text), last) {
		t.Errorf("after the second time\n%s", text)
	}
	if err := os.WriteFile(doc, append(text, "More.\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-into", doc, write(t, "b", oneM)}, nil); err != nil {
		t.Fatal(err)
	}
	text, _ = os.ReadFile(doc)
	if strings.Contains(string(text), "| 1K |") || !strings.Contains(string(text), "| 1M |") || !strings.HasSuffix(string(text), last+"More.\n") {
		t.Errorf("after new results\n%s", text)
	}
}

// TestCommittedTables makes the tables of the documentation again, from the results
// beside them.
func TestCommittedTables(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	committed, err := os.ReadFile(filepath.Join(docs, "performance-h200.md"))
	if err != nil {
		t.Fatal(err)
	}
	again := write(t, "again.md", string(committed))
	results := filepath.Join(docs, "results", "h200")
	if err := run([]string{"-h200", "-into", again, filepath.Join(results, "2-gpus.jsonl"), filepath.Join(results, "4-gpus.jsonl")}, nil); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(again); !bytes.Equal(text, committed) {
		t.Error("docs/performance-h200.md is not what gpu-table makes of docs/results/h200: see its head for the command")
	}
}

func TestRefusals(t *testing.T) {
	torn := write(t, "torn.md", first)
	for want, args := range map[string][]string{
		"expected files":             {},
		"no such file":               {"/nonexistent"},
		`-format "xml"`:              {"-format", "xml", write(t, "a", oneK)},
		"expected a JSON object":     {write(t, "a", "x")},
		"no \"<!-- end of what gpu-": {"-into", torn, write(t, "a", oneK)},
	} {
		if err := run(args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
