package hip

import (
	"context"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
)

func testContext() context.Context { return context.Background() }

// The table keeps every rule for devices, over the emulated library. Tests of abilities that it lacks are skipped, and known here.
func TestConforms(t *testing.T) {
	o := conformance.Options{Image: emulate(t), Index: 1, Child: &conformance.Command{Path: "/proc/self/exe"}}
	var err error
	if o.Backend, err = Backend(); err != nil {
		t.Fatal(err)
	}
	o.Progress = func(r conformance.Result) { t.Log(r) }
	report, err := conformance.Suite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, r := range report.Results {
		if r.Error != "" {
			t.Error(r)
		}
		if r.Lacks != "" {
			left = append(left, r.Name)
		}
	}
	if got, want := strings.Join(left, " "), "links/same links/both-ways links/reached memory/placed memory/view stream/numbers event/all "+
		"multicast/window multicast/ranges multicast/again multicast/other-process multicast/garbage multicast/strangers"; got != want {
		t.Errorf("not run: %s: expected %s", got, want)
	}
	t.Log(report.Summary())
}
