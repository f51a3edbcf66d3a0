package checks

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// CI keeps the end of the output: the failed tests, their messages, panics and
// packages stand there, whatever else a stage has printed, and whichever stages follow.
func TestSummary(t *testing.T) {
	noise := "for i in $(seq 300); do printf 'ok  \\tpackage%d\\t0.1s\\n' $i; done\n"
	script := noise + `
echo '--- FAIL: TestOne (0.10s)'
echo '    one_test.go:12: expected 3'
echo '    --- FAIL: TestOne/second (0.00s)'
echo '        one_test.go:40: rank 1: no answer'
printf 'FAIL\nFAIL\texample.com/one\t0.2s\n'
` + noise + `
echo 'panic: test timed out after 28m0s'
printf '\trunning tests:\n\t\tTestTwo (27m3s)\n'
printf 'FAIL\texample.com/two\t1680s\n'
printf '# example.com/three\nthree.go:7:2: undefined: x\nFAIL\texample.com/three [build failed]\n'
echo 'WARNING: DATA RACE'
echo 'Write at 0x00c000012345 by goroutine 8:'
` + noise + "exit 1"
	verbose := `
echo '=== RUN   TestSuite'
echo '=== RUN   TestSuite/put'
echo '    suite.go:80: 3 ms'
echo '=== RUN   TestSuite/keys'
echo '    suite.go:82: a key of zero bytes: context deadline exceeded'
echo '        and a second line'
echo '=== RUN   TestSuite/end'
echo '--- FAIL: TestSuite (3.00s)'
echo '    --- PASS: TestSuite/put (1.00s)'
echo '    --- FAIL: TestSuite/keys (1.00s)'
echo '    --- PASS: TestSuite/end (1.00s)'
echo FAIL
exit 1`
	stage := func(name, run string) Stage {
		return Stage{Name: name, Run: run, Seconds: 1, Bound: time.Minute, Lane: "main"}
	}
	var out bytes.Buffer
	r := &Runner{Root: t.TempDir(), Out: &out}
	if _, err := r.Run(t.Context(), []Stage{stage("test", script), stage("verbose", verbose), stage("script", "seq 50; echo 'script: no route' >&2; exit 2"), stage("fine", "true")}); err != nil {
		t.Fatal(err)
	}
	_, end, found := strings.Cut(out.String(), "fine  ")
	if !found {
		t.Fatalf("no line of the last stage in\n%s", out.String())
	}
	for _, want := range []string{
		"failed: test: exit status 1\n", "--- FAIL: TestOne (0.10s)", "one_test.go:12: expected 3", "one_test.go:40: rank 1: no answer",
		"FAIL\texample.com/one", "panic: test timed out", "TestTwo (27m3s)", "three.go:7:2: undefined: x", "WARNING: DATA RACE", "Write at",
		"--- FAIL: TestSuite/keys (1.00s)\n        suite.go:82: a key of zero bytes: context deadline exceeded\n            and a second line\n",
		"failed: verbose: TestSuite TestSuite/keys\n",
		"failed: script: exit status 2\n", "    script: no route\n",
		"failed: test: TestOne TestOne/second example.com/one example.com/two example.com/three\n",
	} {
		if !strings.Contains(end, want) {
			t.Errorf("no %q after the last stage:\n%s", want, end)
		}
	}
	if strings.Contains(end, "ok  \tpackage") || strings.Contains(end, "PASS") || strings.Contains(end, "3 ms") {
		t.Errorf("expected nothing of packages and tests that passed:\n%s", end)
	}
	out.Reset()
	if _, err := r.Run(context.Background(), []Stage{stage("fine", "true")}); err != nil || strings.Contains(out.String(), "failed") {
		t.Errorf("%v: expected no summary where nothing failed:\n%s", err, out.String())
	}
}

// A summary has a bound, whatever fails, and each stage has its share of it.
func TestSummaryIsShort(t *testing.T) {
	var log bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&log, "--- FAIL: Test%d (0.1s)\n    x_test.go:1: %s\n", i, strings.Repeat("é", 2000))
	}
	var out bytes.Buffer
	summarize(&out, []failure{{"a", context.Canceled, log.Bytes()}, {"b", context.Canceled, log.Bytes()}, {"c", context.Canceled, nil}})
	if lines := strings.Count(out.String(), "\n"); lines > summaryLines {
		t.Errorf("%d lines, expected at most %d", lines, summaryLines)
	}
	if out.Len() > summaryLines*(lineBytes+10)+3*4*lineBytes {
		t.Errorf("%d bytes", out.Len())
	}
	for _, want := range []string{"failed: a: ", "failed: b: ", "failed: c: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
