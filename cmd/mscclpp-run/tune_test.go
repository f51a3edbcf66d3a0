package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/report"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

// The table that tune writes is a configuration, and jobs choose by it.
func TestTuneInAJob(t *testing.T) {
	i := install(t)
	file := filepath.Join(t.TempDir(), "table.yaml")
	stdout, stderr, code := i.run(t, "-n", "2", "tune", "allreduce", "allgather", "--bytes", "1K:64K", "--factor", "8", "--budget", "40s", "--out", file)
	if code != 0 || stdout != "" {
		t.Fatalf("exit code %d, %q and on stderr %q", code, stdout, stderr)
	}
	e, err := config.Load(config.Sources{Job: file})
	if err != nil {
		t.Fatal(err)
	}
	rows := e.Collectives.Table
	if len(rows) < 2 {
		text, _ := os.ReadFile(file)
		t.Fatalf("%d rows, want some for each collective:\n%s\n%s", len(rows), text, stderr)
	}
	for _, r := range rows {
		if r.MinRanks != 2 || r.MaxRanks != 2 || r.Registered == nil || r.Algorithm == "" || r.MaxBytes == 0 {
			t.Errorf("%+v: expected what was measured, and no more", r)
		}
		// The choices of jobs must be the table's doing: turned around, they choose otherwise.
		flags := []string{"-n", "2", "--config", file, "bench", r.Collective, "--bytes", r.MaxBytes.String(), "--iters", "1", "--calls", "1", "--format", "json"}
		if *r.Registered {
			flags = append(flags, "--registered")
		}
		if got := algorithmOf(t, i, flags...); got != r.Algorithm {
			t.Errorf("%s of %v, registered %v: %s, the table says %s", r.Collective, r.MaxBytes, *r.Registered, got, r.Algorithm)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.yaml")
	turned := regexp.MustCompile(`algorithm: \w+`).ReplaceAll(text, []byte("algorithm: chunk"))
	turned = regexp.MustCompile(`(collective: allreduce.*algorithm: )chunk`).ReplaceAll(turned, []byte("${1}allpair_chunk"))
	if err := os.WriteFile(other, turned, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := algorithmOf(t, i, "-n", "2", "--config", other, "bench", "allreduce", "--bytes", "1K", "--iters", "1", "--format", "json"); got != "allpair_chunk" {
		t.Errorf("%s, the changed table says allpair_chunk", got)
	}
}

func algorithmOf(t *testing.T, i installed, args ...string) string {
	t.Helper()
	stdout, stderr, code := i.run(t, args...)
	var r report.Row
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("%q: exit code %d, %v\n%s%s", args, code, err, stdout, stderr)
	}
	return r.Algorithm
}
