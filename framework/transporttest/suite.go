package transporttest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/control"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/kernels"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/port"
)

// tests returns the suite in the order in which it runs: a transport that fails
// early tests should be repaired before the later ones are read.
func tests(more []Test) []harness.Test {
	all := slices.Concat(control.Tests(), memory.Tests(), port.Tests(), kernels.Tests(), failure.Tests())
	for _, x := range more {
		all = append(all, harnessed(x))
	}
	return all
}

// Suite runs all tests that apply. The error is about the suite itself: no side
// could be opened or described. Failures are in the report.
func Suite(ctx context.Context, o Options) (report Report, err error) {
	h := o.harness()
	var sides harness.Pool
	defer func() { err = errors.Join(err, sides.Close()) }()
	c, err := sides.Describe(ctx, h)
	if err != nil {
		return Report{}, err
	}
	report = Report{Transport: c.Name + " " + c.Version}
	for _, x := range applicable(c, o) {
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		if c.Memory.Lacks != "" && !x.Bare {
			report.Left, report.Reason = report.Left+1, c.Memory.Lacks
			continue
		}
		r := runOne(ctx, o, h, &sides, c, x)
		report.Results = append(report.Results, r)
		if o.Progress != nil {
			o.Progress(r)
		}
	}
	return report, nil
}

// Run runs the suite as subtests of t. Tests of one suite never run in parallel:
// they count descriptors.
func Run(t *testing.T, open func(t testing.TB) *Side, adjust ...func(*Options)) {
	o := Options{Open: func(context.Context) (*Side, error) { return open(t), nil }}
	for _, f := range adjust {
		f(&o)
	}
	h := o.harness()
	var sides harness.Pool
	t.Cleanup(func() {
		if err := sides.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := sides.Describe(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, x := range applicable(c, o) {
		if c.Memory.Lacks != "" && !x.Bare {
			left++
			continue
		}
		t.Run(x.Name, func(t *testing.T) {
			r := runOne(t.Context(), o, h, &sides, c, x)
			if !r.Pass {
				t.Error(r.Error)
			} else if r.Known != "" {
				t.Logf("failed as expected (%s):\n%s", r.Known, r.Error)
			}
		})
	}
	if left > 0 {
		t.Run("rest", func(t *testing.T) { t.Skipf("needs %s, for %d tests", c.Memory.Lacks, left) })
	}
}

func applicable(c harness.Claims, o Options) []harness.Test {
	var list []harness.Test
	for _, x := range tests(o.More) {
		if (x.When == nil || x.When(c)) && (o.Match == nil || o.Match.MatchString(x.Name)) {
			list = append(list, x)
		}
	}
	return list
}

// runOne runs one test, and turns the outcome of a known defect around.
func runOne(ctx context.Context, o Options, h harness.Options, sides *harness.Pool, c harness.Claims, x harness.Test) Result {
	failure, failed, took := harness.Execute(ctx, h, sides, c, x)
	r := Result{Name: x.Name, Pass: !failed, Error: failure, Duration: took}
	if reason, known := o.Known[x.Name]; known {
		r.Known = reason
		r.Pass = !r.Pass
		if !r.Pass {
			r.Error = "a known defect passes: remove it from the list (" + reason + ")"
		}
	}
	return r
}
