package checks

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// failing runs a stage with this script, and returns what is printed when it has failed, and the
// summary of it at the end.
func failing(t *testing.T, script string) (shown, summary string) {
	t.Helper()
	var out bytes.Buffer
	r := &Runner{Root: t.TempDir(), Out: &out}
	total, err := r.Run(t.Context(), []Stage{{Name: "guest", Run: script + "\nexit 1", Seconds: 1, Bound: time.Minute, Lane: "main"}})
	if err != nil || total.Failed != 1 {
		t.Fatalf("%+v, %v: expected a failure\n%s", total, err, out.String())
	}
	shown, summary, found := strings.Cut(out.String(), "failed: guest: ")
	if !found {
		t.Fatalf("no summary in\n%s", out.String())
	}
	return shown, summary
}

// A warning that repeats until the bound of a stage does not hide how it began.
func TestRepeatedLinesAreLeftOut(t *testing.T) {
	shown, summary := failing(t, `
echo "== check on 4 ranks over two guests"
for i in $(seq 22 28 1200); do
	for cpu in 0 1 2 3; do
		task="migration/$cpu:16"
		[ $cpu != 2 ] || task=cryptomgr_test:65
		echo "[ $i.$cpu] watchdog: BUG: soft lockup - CPU#$cpu stuck for ${i}s! [$task]"
	done
done
echo "guest: ended without a status"`)
	for _, want := range []string{"== check on 4 ranks", "stuck for 22s! [migration/0:16]", "stuck for 22s! [cryptomgr_test:65]", "lines like others", "stuck for 1198s! [migration/3:16]", "guest: ended"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
	for _, want := range []string{"stuck for 22s! [migration/0:16]", "stuck for 1198s! [migration/3:16]", "guest: ended"} {
		if !strings.Contains(summary, want) {
			t.Errorf("no %q in the summary\n%s", want, summary)
		}
	}
	if n := strings.Count(shown, "\n"); n > 40 {
		t.Errorf("%d lines, expected at most 40 of 170:\n%s", n, shown)
	}
}

// The first lines of trouble are shown with the last lines, since the latter often follow from them.
func TestFirstTroubleIsShown(t *testing.T) {
	shown, summary := failing(t, `
seq 5
echo "10 passed, 0 failed"
echo "plugin: no such device"
for word in $(echo {a..z}{a..z}); do echo "waiting for $word"; done
echo "the end"`)
	for where, text := range map[string]string{"log": shown, "summary": summary} {
		first, last := strings.Index(text, "plugin: no such device"), strings.Index(text, "the end")
		if first < 0 || last < first {
			t.Errorf("%s: expected the first trouble, and then the end:\n%s", where, text)
		}
		if strings.Contains(text, "waiting for aa\n") {
			t.Errorf("%s: expected the middle to be left out:\n%s", where, text)
		}
		if where == "summary" && strings.Contains(text, "10 passed") {
			t.Errorf("a count of no failures is no trouble:\n%s", text)
		}
	}
	if !strings.Contains(shown, "… 577 lines\n") {
		t.Errorf("expected to hear how many lines are left out:\n%s", shown)
	}
}

// Lines that name what failed stay, however alike they are.
func TestCausesAreNotLeftOut(t *testing.T) {
	shown, _ := failing(t, `for i in $(seq 15); do echo "--- FAIL: TestThing$i (0.00s)"; done`)
	if n := strings.Count(shown, "--- FAIL: TestThing"); n != 15 {
		t.Errorf("%d failed tests, expected 15:\n%s", n, shown)
	}
}

// A test that has failed says why below its name.
func TestReasonsAreShown(t *testing.T) {
	shown, _ := failing(t, `
echo "--- FAIL: TestThing (0.00s)"
echo "    thing_test.go:12: expected another"
for word in $(echo {a..z}{a..z}); do echo "ok $word"; done`)
	if !strings.Contains(shown, "expected another") {
		t.Errorf("the reason is left out:\n%s", shown)
	}
}
