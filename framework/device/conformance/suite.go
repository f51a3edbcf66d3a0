// Package conformance is the suite for devices: what a table of mscclpp/device_backend.h has to keep, test by test. It finds
// nothing out about speed.
//
// `mscclpp-run conform --device` runs it, and so do the tests of device back ends, whatever language they are written in.
package conformance

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// tests are in the order in which they run: early ones should be mended before later ones are read.
func tests() []test {
	var all []test
	for _, list := range [][]test{openTests(), linkTests(), memoryTests(), shareTests(), moduleTests(), streamTests(), eventTests(), graphTests(), multicastTests(), failureTests()} {
		all = append(all, list...)
	}
	return all
}

// List writes the tests and the rule that each checks.
func List(w io.Writer, match *regexp.Regexp) error {
	for _, t := range tests() {
		if match == nil || match.MatchString(t.name) {
			if _, err := fmt.Fprintf(w, "%-34s %s\n", t.name, t.rule); err != nil {
				return err
			}
		}
	}
	return nil
}

// Suite runs all tests that apply. The error is about the suite itself.
func Suite(ctx context.Context, o Options) (Report, error) {
	if o.Limit == 0 {
		o.Limit = 2 * time.Minute
	}
	var report Report
	for _, t := range tests() {
		if o.Match != nil && !o.Match.MatchString(t.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return report, err
		}
		r, stuck := runOne(ctx, o, t)
		report.Results = append(report.Results, r)
		if o.Progress != nil {
			o.Progress(r)
		}
		if stuck {
			return report, fmt.Errorf("conformance: %s did not end within %v, so nothing more can be tested in this process", t.name, o.Limit)
		}
	}
	return report, nil
}

// runOne runs a test on a goroutine of its own: what is stuck in a back end cannot be ended.
func runOne(ctx context.Context, o Options, x test) (r Result, stuck bool) {
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	t := &T{ctx: ctx, o: o}
	began := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer t.end()
		x.run(t)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(o.Limit / 4): // its waits end with the context, if it is not the back end that waits
			return Result{Name: x.name, Rule: x.rule, Took: time.Since(began), Error: "it did not end: " + context.Cause(ctx).Error()}, true
		}
	}
	return Result{Name: x.name, Rule: x.rule, Took: time.Since(began), Error: strings.Join(t.findings, "\n"), Lacks: t.lacks}, false
}
