package launch

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/beforeexec"
)

// copied is a copy of the test binary, which nothing runs. Another process makes it: a copy
// that any process has open for writing cannot be executed.
func copied(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("cp", self(), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// A rank that is killed before it has become the program is one that was killed.
func TestRankKilledBeforeItsProgram(t *testing.T) {
	j := helper(3, "wait")
	j.Path, j.Stdout, j.Stderr = copied(t), io.Discard, io.Discard
	j.Supervisor = nil
	await := beforeexec.Kill(t, j.Path)
	got, err := Run(t.Context(), j)
	await()
	if want := (Result{Code: 137, Rank: 0, Signal: "SIGKILL"}); err != nil || got != want {
		t.Errorf("%+v, %v, expected %+v", got, err, want)
	}
}

// A supervisor that is killed before it has become one has a successor, and the job goes on:
// it ends in its own time.
func TestSupervisorKilledBeforeItsProgram(t *testing.T) {
	j := helper(1, "report")
	j.Supervisor[0] = copied(t)
	await := beforeexec.Kill(t, j.Supervisor[0])
	j.Guard = Supervise(j.Supervisor)
	await()
	first := j.Guard.child.PID
	signals, out := make(chan os.Signal, 1), newText()
	j.Stdout, j.Stderr, j.Report, j.Signals = out, io.Discard, io.Discard, signals
	done := make(chan error, 1)
	go func() {
		_, err := Run(t.Context(), j)
		done <- err
	}()
	out.await(t, "ready", 1)
	succeeded(t, first)
	signals <- os.Interrupt
	if err := <-done; err != nil {
		t.Error(err)
	}
}
