package transporttest

import (
	"context"

	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// TB is what a test of the suite gets: the part of testing.TB that does not need go
// test. Fatalf ends the calling goroutine.
type TB interface {
	Context() context.Context // ends when the test has to
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Test is a test beside those of the suite, for Options.More: of what is claimed in
// another place than the description.
type Test struct {
	Name string // part/subject, as in "control/close"
	Rule string // the rule that it checks, in a sentence
	Body func(t TB)
}

// Entry is a test in the list of all.
type Entry struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
}

// List lists the tests in the order in which they run, whether or not they apply to a
// transport.
func List(more ...Test) []Entry {
	var all []Entry
	for _, x := range tests(more) {
		all = append(all, Entry{x.Name, x.Rule})
	}
	return all
}

// harnessed makes a test of the suite from one that came with the options.
func harnessed(x Test) harness.Test {
	return harness.Test{Name: x.Name, Rule: x.Rule, Bare: true, Body: func(t *harness.T) { x.Body(t) }}
}
