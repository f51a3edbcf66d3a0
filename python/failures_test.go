package python

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// Failures are exceptions on all ranks that are concerned, and no process is left with a call that never ends.
func TestFailures(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	for scene, ranks := range map[string]int{
		"raises": 3, "leaves": 3, "open_at_exit": 2, "forked": 2, "forks_first": 1, "grouped": 2, "handled": 2, "raising_log": 2, "threads": 1, "interrupted_child": 1, "interrupted_everywhere": 1,
	} {
		t.Run(scene, func(t *testing.T) { done(t, p, ranks, "tests/failures.py", scene) })
	}
}

// A rank that ends with an exception ends the job, and the others have learned why before.
func TestUncaughtException(t *testing.T) {
	newest(t, "nothing else", anyPython)
	for _, p := range interpreters() {
		for _, scene := range []string{"uncaught", "uncaught_beside_a_thread"} {
			t.Run(scene+"/"+p.name(), func(t *testing.T) {
				text, err := run(t, p, 3, nil, "tests/failures.py", scene)
				if err == nil {
					t.Error("the job has succeeded")
				}
				for _, want := range []string{"rank 0 is done\n", "rank 2 is done\n", "ValueError: that nobody catches"} {
					if !strings.Contains(text, want) {
						t.Errorf("%q is missing:\n%s", want, text)
					}
				}
			})
		}
	}
}

// When a rank is killed, the operators of the others, the fused all-reduce and norm, dispatch and combine, end within seconds with an
// error that names it.
func TestKilledInOperators(t *testing.T) {
	p := newest(t, "nothing else", anyPython)
	for _, scene := range []string{"killed_in_norm", "killed_in_dispatch", "killed_in_combine", "killed_in_dispatch_over_hosts", "killed_in_combine_over_hosts"} {
		t.Run(scene, func(t *testing.T) {
			watch := promise.Begin()
			text, err := run(t, p, 3, nil, "tests/failures.py", scene)
			if err == nil {
				t.Error("the job has succeeded")
			}
			for _, want := range []string{"rank 0 is done\n", "rank 2 is done\n"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is missing:\n%s", want, text)
				}
			}
			if err := watch.Kept(20 * time.Second); err != nil { // with the start of the job
				t.Error("the ranks were done ", err)
			}
		})
	}
}

// Ctrl-C ends a call that waits within a second.
func TestKeyboardInterrupt(t *testing.T) {
	root := tree(t)
	for _, scene := range []string{"interrupted", "interrupted_join"} {
		for _, p := range interpreters() {
			t.Run(scene+"/"+p.name(), func(t *testing.T) { interrupt(t, root, p, "tests/failures.py", scene) })
		}
	}
}

// Ctrl-C in a job ends the calls of all ranks, which end in order.
func TestInterruptedJob(t *testing.T) {
	p, root := newest(t, "nothing else", anyPython), tree(t)
	c, lines := reading(t, root, filepath.Join(root, "bin/mscclpp-run"), "-n", "2", "--", p.Path, "tests/failures.py", "interrupted_job")
	count := map[string]int{}
	for lines.Scan() {
		count[lines.Text()]++
		if lines.Text() == "waits" && count["waits"] == 2 {
			if err := c.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	err := c.Wait()
	if count["waits"] != 2 || count["interrupted"] != 2 || count["rank 0 is done"] != 1 || count["rank 1 is done"] != 1 {
		t.Errorf("%v, %v: expected each of 2 ranks to wait, to be interrupted, and to be done", err, count)
	}
}

// reading starts a program, which is killed at the limit, and returns the lines that it prints.
func reading(t *testing.T, root, program string, arguments ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, program, arguments...)
	c.Env = environment(t, root, "MSCCLPP_LOG__LEVEL=none")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewScanner(out)
}

func interrupt(t *testing.T, root string, p interpreter, program, scene string) {
	c, lines := reading(t, root, p.Path, program, scene)
	if !lines.Scan() || lines.Text() != "waits" {
		t.Errorf("%q: expected waits", lines.Text())
	}
	watch, said := promise.Begin(), make(chan struct{})
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	go func() {
		defer close(said)
		if !lines.Scan() || lines.Text() != "interrupted" {
			t.Errorf("%q: expected interrupted", lines.Text())
		}
	}()
	if err := watch.Await(said, time.Second); err != nil {
		t.Errorf("KeyboardInterrupt: %v", err)
		_ = c.Process.Kill()
	}
	<-said
	for lines.Scan() { // until it ends
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
