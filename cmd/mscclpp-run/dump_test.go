package main

import (
	"bufio"
	"io"
	"strings"
	"syscall"
	"testing"
)

// Ranks of verbs ask for SIGUSR1, and the launcher forwards it: they print the state of
// their job and go on.
func TestLauncherForwardsTheDumpSignal(t *testing.T) {
	c := command(t, "-n", "1", "--set", "plugins.embed=tcp", "--set", "transports=tcp", "bench", "allreduce", "-b", "4:64M", "--device", "host")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, errs)
		_ = c.Wait() // ended by us
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil { // it measures
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err := c.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "comm world: rank 0 of 1: running") {
			return
		}
	}
	t.Errorf("%q: expected the state of the job", said.String())
}
