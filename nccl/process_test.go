package nccl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The death of a rank is seen while its child lives: the child has given its connections up.
func TestFork(t *testing.T) {
	t.Parallel()
	ranksWith(t, "fork.c", 2, environ(t), 1)
}

// One fork finds the program's file behind each number that the library had, which chance does in one of thousands. The number of the others is
// small here: 10000 with MSCCLPP_TEST_FULL, which "make nccl-soak" sets.
func TestForksLoseNoDescriptor(t *testing.T) {
	t.Parallel()
	alone(t, "descriptors.c", "TEST_FORKS="+full("100", "10000"))
}

// full is a number for every day, or that of a long run.
func full(short, long string) string {
	if os.Getenv("MSCCLPP_TEST_FULL") != "" {
		return long
	}
	return short
}

// limit is how long a program may run, which takes a minute at most unless the machine is very busy.
func limit() time.Duration {
	if os.Getenv("MSCCLPP_TEST_FULL") != "" {
		return 2 * time.Hour
	}
	return 10 * time.Minute
}

func TestFaultHandlers(t *testing.T) {
	t.Parallel()
	alone(t, "process.c", "TEST_MODE=faults")
}

func TestHostCollectsChildren(t *testing.T) {
	t.Parallel()
	alone(t, "process.c", "TEST_MODE=reaper")
}

// Neither the thread that makes communicators need stay, nor the main one.
func TestThreadsEnd(t *testing.T) {
	t.Parallel()
	alone(t, "process.c", "TEST_MODE=threads end")
}

func TestSixtyFourCommunicators(t *testing.T) {
	t.Parallel()
	alone(t, "process.c", "TEST_MODE=many")
}

func TestCallsOfOneRankLeaveNothing(t *testing.T) {
	t.Parallel()
	alone(t, "process.c", "TEST_MODE=one rank")
}

// A round makes three communicators: 10,002 with MSCCLPP_TEST_FULL.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	alone(t, "process.c", "TEST_MODE=leaks", "TEST_ROUNDS="+full("40", "3334"))
}

// Ctrl-C ends a program that is in a call, or is the program's where that has a handler.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]syscall.Signal{"interrupt": syscall.SIGINT, "interrupt handled": 0} {
		t.Run(mode, func(t *testing.T) {
			program, env := compile(t, "process.c"), environ(t, "TEST_MODE="+mode)
			ctx, cancel := context.WithTimeout(t.Context(), limit())
			defer cancel()
			c := exec.CommandContext(ctx, program)
			c.Env, c.Stderr = env, os.Stderr
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
				t.Errorf("it printed %q, expected ready", lines.Text())
			}
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			err = c.Wait()
			var ended *exec.ExitError
			if want == 0 && err != nil || want != 0 && (!errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != want) {
				t.Errorf("it ended with %v, expected signal %v", err, want)
			}
		})
	}
}

// A rank is killed while the other one is in any call.
func TestKilledInsideCalls(t *testing.T) {
	library(t)
	for call := range 12 {
		t.Run(fmt.Sprint(call), func(t *testing.T) {
			t.Parallel()
			ranksWith(t, "killed.c", 2, environ(t, fmt.Sprintf("TEST_CALL=%d", call)), 1)
		})
	}
}

// The table of NCCL's semantics names tests that exist.
func TestLinesHaveTests(t *testing.T) {
	text, err := os.ReadFile("../docs/nccl-lines.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	source := func(files ...string) string {
		var all strings.Builder
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Error(err)
			}
			all.Write(b)
		}
		return all.String()
	}
	goTests, rows := source(tests...), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.Trim(cells[1], "- ") == "" || strings.TrimSpace(cells[1]) == "line" {
			continue
		}
		rows++
		program := ""
		for _, word := range strings.FieldsFunc(cells[2], func(r rune) bool { return strings.ContainsRune(" ,;", r) }) {
			name := strings.Trim(word, "`")
			switch {
			case strings.HasSuffix(word, ".c"):
				program = source("testdata/" + word)
				if !strings.Contains(goTests, strconv.Quote(word)) {
					t.Errorf("no test runs %s: %s", word, line)
				}
			case strings.HasPrefix(name, "Test") && !strings.Contains(goTests, "func "+name+"("),
				name != word && !strings.HasPrefix(name, "Test") && !strings.Contains(program, name+"("):
				t.Errorf("there is no %s: %s", name, line)
			}
		}
	}
	if rows < 60 {
		t.Errorf("%d rows", rows)
	}
}
