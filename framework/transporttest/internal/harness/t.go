// Package harness is what the tests of the suite share: ranks with watched sides, links,
// channels, runners of kernels, and the run of one test.
package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// WantClass checks that err belongs to one of the classes.
func (t *T) WantClass(what string, err error, classes ...error) {
	for _, c := range classes {
		if errors.Is(err, c) {
			return
		}
	}
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = c.Error()
	}
	if err == nil {
		t.Errorf("%s: accepted; want an error of class %s", what, strings.Join(names, " or "))
	} else {
		t.Errorf("%s: %v; want class %s", what, err, strings.Join(names, " or "))
	}
}

// T is one running test. It has the manners of testing.T and does not need go test.
type T struct {
	ctx     context.Context
	Options *Options
	pool    *Pool
	Claims  Claims

	mu       sync.Mutex
	findings []string
	cleanups []func()
}

// maxFindings bounds what a loop over ten thousand cases can report.
const maxFindings = 8

// Errorf records a finding; the test goes on.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(t.findings); {
	case n < maxFindings:
		t.findings = append(t.findings, fmt.Sprintf(format, args...))
	case n == maxFindings:
		t.findings = append(t.findings, "further findings left out")
	}
}

// Fatalf records a finding and ends the calling goroutine.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Context ends when the test has to.
func (t *T) Context() context.Context { return t.ctx }

// Cleanup runs f after the test, last added first.
func (t *T) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// Failed reports whether there are findings.
func (t *T) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.findings) > 0
}

func (t *T) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.findings, "\n")
}

// guard runs f and turns a panic into a finding.
func (t *T) guard(f func()) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v\n%s", p, stack())
		}
	}()
	f()
}

// Spawn runs f beside the test, guarded. The test does not end, and frees nothing,
// before f has.
func (t *T) Spawn(f func()) {
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		t.guard(f)
	}()
}

// All runs f(0) … f(n-1) at once and waits for them, each guarded.
func (t *T) All(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { t.guard(func() { f(i) }) })
	}
	group.Wait()
}

func (t *T) cleanup() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		t.guard(f)
	}
}

// stack is the part of the stack below the panic, shortened for a report.
func stack() string {
	lines := strings.Split(string(debug.Stack()), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic(") && i+2 < len(lines) {
			lines = lines[i+2:]
			break
		}
	}
	return strings.Join(lines[:min(len(lines), 8)], "\n")
}
