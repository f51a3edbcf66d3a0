package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// After a failure all ranks start again, as often as was asked for, and know how often.
func TestMaxRestarts(t *testing.T) {
	script := `read line; echo "$RANK $line $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS"; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 3`
	c := command(t, "-n", "2", "--max-restarts", "2", "sh", "-c", script)
	c.Stdin = strings.NewReader("word\nanother\n")
	code, out, errs := runs(c)
	if code != 0 || !strings.Contains(errs, "restart 1 of 2\n") || !strings.Contains(errs, "restart 2 of 2\n") {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
	for _, line := range []string{"0  2 2", "1  2 2"} { // the first ranks have read the input
		if !slices.Contains(sortedLines(out), line) {
			t.Errorf("%q: expected %q", out, line)
		}
	}
	code, _, errs = runs(command(t, "-n", "2", "--max-restarts=1", "-q", "sh", "-c", "exit 3"))
	if code != 3 || strings.Contains(errs, "restart") {
		t.Errorf("code %d, %q: expected the code of a rank", code, errs)
	}
	for _, flags := range [][]string{{"--max-restarts", "-1"}, {"--max-restarts", "1", "--host", "a,b"}, {"--max-restarts", "1", "-N", "2", "--node-rank", "0", "--master-addr", "127.0.0.1"}} {
		if code, _, errs := runs(command(t, append(flags, "-n", "2", "true")...)); code != 2 || !strings.Contains(errs, "--max-restarts") {
			t.Errorf("%v: code %d, %q: expected a mistake of use", flags, code, errs)
		}
	}
}

// A job that a signal has ended is not started again.
func TestNoRestartOfWhatWasEnded(t *testing.T) {
	c := command(t, "-n", "1", "--max-restarts", "3", "sh", "-c", "echo ready; exec sleep 100")
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) || strings.Contains(errs.String(), "restart") {
		t.Errorf("code %d, %q: expected an end by the signal", code, errs.String())
	}
}
