package transporttest_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// onFakes runs a part of the suite over port channels that ranks drive, on devices
// whose memory the host cannot address.
func onFakes(t *testing.T, match string, plant func(*broken)) transporttest.Report {
	t.Helper()
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			b := &broken{Transport: loopback.NewByRank()}
			if plant != nil {
				plant(b)
			}
			return transporttest.Embedded(b), nil
		},
		Device:    func(rank int) (device.Device, error) { return devicetest.Open(rank) },
		Match:     regexp.MustCompile(match),
		CallLimit: 20 * time.Second,
		TestLimit: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestPortsThatRanksDrive(t *testing.T) {
	report := onFakes(t, "^driven/|^control/", nil)
	driven := 0
	for _, r := range report.Results {
		if strings.HasPrefix(r.Name, "driven/") {
			driven++
		}
		if !r.Pass {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
	if driven < 8 {
		t.Errorf("%d tests of driven ports ran, expected 8", driven)
	}
}

// A host has no copy engine: there is nothing that could be tested.
func TestPortsThatNobodyDrives(t *testing.T) {
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			return transporttest.Embedded(loopback.NewByRank()), nil
		},
		Match: regexp.MustCompile("^driven/|^port/|^control/"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if !r.Pass || !strings.HasPrefix(r.Name, "control/") {
			t.Errorf("%s: pass %v: %s", r.Name, r.Pass, r.Error)
		}
	}
}

// Recipes that are wrong in the ways in which recipes go wrong are found.
func TestDrivenTestsFindDefects(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *framework.Attachment)
		want   string
	}{
		"offset ignored": {func(a *framework.Attachment) { a.Mappings[0].Offset = 0 }, "is not what was stored"},
		"off by a page":  {func(a *framework.Attachment) { a.Mappings[0].Offset ^= 4096 }, "is not what was stored"},
		"no step":        {func(a *framework.Attachment) { a.Steps = nil }, "no step of the recipe maps"},
		"no mapping": {func(a *framework.Attachment) {
			a.Close()
			*a = framework.Attachment{}
		}, "want one mapping"},
		"inbox": {func(a *framework.Attachment) { a.Mappings[0].Role = framework.RoleInbox }, "want one mapping"},
		"short": {func(a *framework.Attachment) { a.Mappings[0].Bytes -= 8 }, "want one mapping"},
	} {
		t.Run(name, func(t *testing.T) {
			report := onFakes(t, "^driven/recipe$", func(b *broken) {
				b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
					if err == nil {
						c.change(&a)
					}
					return a, err
				}
			})
			if report.Failed() != 1 || !strings.Contains(report.Results[0].Error, c.want) {
				t.Errorf("%s: %+v: expected a finding with %q", report.Summary(), report.Results, c.want)
			}
		})
	}
}
