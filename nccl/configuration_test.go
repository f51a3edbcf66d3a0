package nccl

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// userFile writes a file of the configuration, and returns the variable that names it.
func userFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "MSCCLPP_CONFIG=" + path
}

// The library has defaults of its own, and a user's variable or file counts before them: messages of a group may share
// buffers unless the user wants that checked.
func TestUsersConfigurationCounts(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"TEST=":                                 "0 ",
		userFile(t, "check: {overlap: true}\n"): "4 ",
		"MSCCLPP_CHECK__OVERLAP=true":           "4 ",
	} {
		if got := alone(t, "overlap.c", variable); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, expected the code %s", variable, got, want)
		}
	}
}

// A rank that never comes is waited for as long as the user says, and named.
func TestUsersTimeoutCounts(t *testing.T) {
	t.Parallel()
	program, m := compile(t, "join.c"), newMaker(t, "4")
	ctx, cancel := context.WithTimeout(t.Context(), limit())
	defer cancel()
	for i, variable := range []string{userFile(t, "bootstrap: {timeout: 300ms}\n"), "MSCCLPP_BOOTSTRAP__TIMEOUT=300ms"} {
		for rank, missing := range []string{"rank 1", "rank 0"} {
			c := exec.CommandContext(ctx, program)
			c.Env = append(environ(t, variable), fmt.Sprint("TEST_RANK=", rank), "TEST_SIZE=2", "TEST_ID="+hex.EncodeToString(m.ids[2*i+rank][:]))
			lines := strings.Split(strings.TrimSpace(run(t, c)), "\n") // of the log, and then of the program
			if got := lines[len(lines)-1]; !strings.HasPrefix(got, "6 ") || !strings.Contains(got, missing) {
				t.Errorf("%s: rank %d prints %q, expected code 6 and %s", variable, rank, got, missing)
			}
		}
	}
}
