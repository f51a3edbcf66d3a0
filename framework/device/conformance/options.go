package conformance

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

// Options says what to test.
type Options struct {
	Backend *native.Backend
	Index   int            // of the device
	Options string         // lines for open
	Image   []byte         // of the suite's kernels, for this device; nil: what needs one is not run
	Match   *regexp.Regexp // names of the tests to run; nil: all
	Limit   time.Duration  // of a test; 0: 2 minutes

	// Child starts the program that calls [Child] in a process of its own; nil: what needs one is not run.
	Child *Command

	Progress func(Result) // may be nil
}

// Command is a program, with additions to its environment.
type Command struct {
	Path string
	Args []string
	Env  []string
}

// Result is the outcome of one test.
type Result struct {
	Name  string
	Rule  string
	Error string // the findings, one a line; "": it passed
	Lacks string // not run, because there is no…
	Took  time.Duration
}

// Report is the outcome of the suite.
type Report struct{ Results []Result }

// Failed counts the tests that failed.
func (r Report) Failed() int {
	return r.count(func(t Result) bool { return t.Error != "" })
}

func (r Report) count(is func(Result) bool) (n int) {
	for _, t := range r.Results {
		if is(t) {
			n++
		}
	}
	return n
}

// Summary is the last line of a report.
func (r Report) Summary() string {
	passed := r.count(func(t Result) bool { return t.Error == "" && t.Lacks == "" })
	text := fmt.Sprintf("%d passed, %d failed", passed, r.Failed())
	if left := len(r.Results) - passed - r.Failed(); left > 0 {
		text += fmt.Sprintf(", %d skipped", left)
	}
	return text
}

// String is a line for people, followed by the findings.
func (r Result) String() string {
	word, rest := "ok  ", ""
	switch {
	case r.Lacks != "":
		word, rest = "-   ", "  not run: "+r.Lacks
	case r.Error != "":
		word, rest = "FAIL", "\n      "+strings.ReplaceAll(r.Error, "\n", "\n      ")+"\n      rule: "+r.Rule
	}
	return fmt.Sprintf("%s %-34s %7.3f s%s", word, r.Name, r.Took.Seconds(), rest)
}

// test is one of the suite.
type test struct {
	name, rule string
	run        func(*T)
}
