package transporttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// test is one entry of the suite.
type test struct {
	name string
	when func(c claims) bool // nil: always
	bare bool                // needs no memory that the transport serves
	body func(t *T)
}

// claims are what decides which tests apply.
type claims struct {
	framework.Description
	process bool   // the side is a process that can be killed
	engine  bool   // the device has copy engines
	actor   []byte // image of the actor kernel that the device can load; nil if none
	memory  memory // what the device of the suite has for the transport
}

// The tests of channels act as kernels on memory that this process can touch. On
// other devices those named device/ and driven/ take their place.
func memoryClaimed(c claims) bool { return c.Has(framework.KindMemory) && !c.memory.apart }
func switchClaimed(c claims) bool { return c.Has(framework.KindSwitch) && !c.memory.apart }
func portClaimed(c claims) bool {
	return c.Has(framework.KindPort) && c.Proxy == framework.ProxyPlugin && !c.memory.apart
}
func isProcess(c claims) bool         { return c.process }
func isProcessWithPort(c claims) bool { return c.process && portClaimed(c) }

// tests returns the suite in the order in which it runs: a transport that fails
// early tests should be repaired before the later ones are read.
func tests() []test {
	var all []test
	for _, part := range [][]test{
		controlTests, parcelTests, ownershipTests, memoryTests, deviceTests, switchTests, portTests, portControlTests, streamTests, drivenTests, drivenKernelTests, kernelTests, failureTests,
	} {
		all = append(all, part...)
	}
	return all
}

// Suite runs all tests that apply. The error is about the suite itself: no side
// could be opened or described. Failures are in the report.
func Suite(ctx context.Context, o Options) (report Report, err error) {
	o = o.withDefaults()
	var sides pool
	defer func() { err = errors.Join(err, sides.close()) }()
	c, err := sides.describe(ctx, o)
	if err != nil {
		return Report{}, err
	}
	report = Report{Transport: c.Name + " " + c.Version}
	for _, x := range applicable(c, o) {
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		if c.memory.lacks != "" && !x.bare {
			report.Left, report.Reason = report.Left+1, c.memory.lacks
			continue
		}
		r := runOne(ctx, o, &sides, c, x)
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
	o = o.withDefaults()
	var sides pool
	t.Cleanup(func() {
		if err := sides.close(); err != nil {
			t.Error(err)
		}
	})
	c, err := sides.describe(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, x := range applicable(c, o) {
		if c.memory.lacks != "" && !x.bare {
			left++
			continue
		}
		t.Run(x.name, func(t *testing.T) {
			r := runOne(t.Context(), o, &sides, c, x)
			if !r.Pass {
				t.Error(r.Error)
			} else if r.Known != "" {
				t.Logf("failed as expected (%s):\n%s", r.Known, r.Error)
			}
		})
	}
	if left > 0 {
		t.Run("rest", func(t *testing.T) { t.Skipf("needs %s, for %d tests", c.memory.lacks, left) })
	}
}

func applicable(c claims, o Options) []test {
	var list []test
	for _, x := range tests() {
		if (x.when == nil || x.when(c)) && (o.Match == nil || o.Match.MatchString(x.name)) {
			list = append(list, x)
		}
	}
	return list
}

// runOne runs one test in a goroutine of its own, so that a hung transport costs
// one test and not the suite.
func runOne(ctx context.Context, o Options, sides *pool, c claims, x test) Result {
	ctx, cancel := context.WithTimeout(ctx, o.TestLimit)
	defer cancel()
	t := &T{ctx: ctx, o: &o, pool: sides, claims: c}
	start := time.Now()
	var done sync.WaitGroup
	done.Go(func() {
		defer t.cleanup()
		t.guard(func() { x.body(t) })
	})
	ended := make(chan struct{})
	go func() { done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(o.TestLimit + 2*grace):
		t.Errorf("hung: the test did not end within %v", o.TestLimit)
	}
	r := Result{Name: x.name, Pass: !t.failed(), Error: t.text(), Duration: time.Since(start)}
	if reason, known := o.Known[x.name]; known {
		r.Known = reason
		r.Pass = !r.Pass
		if !r.Pass {
			r.Error = "a known defect passes: remove it from the list (" + reason + ")"
		}
	}
	return r
}
