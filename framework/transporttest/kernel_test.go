package transporttest_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image/imagetest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// armed is the reference transport with the actor kernel.
type armed struct {
	*broken
	set *image.Set
}

func (a armed) Describe(ctx context.Context) (framework.Description, error) {
	d, err := a.broken.Describe(ctx)
	for _, i := range a.set.Infos() {
		if i.Family == "actor" {
			d.Images = append(d.Images, i)
		}
	}
	return d, err
}

func (a armed) Image(_ context.Context, id string) ([]byte, error) { return a.set.Read(id) }

// actorSet builds the actor for this processor.
func actorSet(t *testing.T) *image.Set {
	t.Helper()
	d, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return imagetest.Build(t, "testdata/actor.json", d.Info().Archs[0])
}

func withKernels(t *testing.T, match string, plant func(*broken)) transporttest.Report {
	t.Helper()
	set := actorSet(t)
	limit := 30 * time.Second
	if plant != nil {
		limit = 2 * time.Second // kernels that wait for what never comes leave when the test is over
	}
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			b := &broken{Transport: loopback.New()}
			if plant != nil {
				plant(b)
			}
			return transporttest.Embedded(armed{b, set}), nil
		},
		Match: regexp.MustCompile(match), TestLimit: limit,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestKernels(t *testing.T) {
	report := withKernels(t, "^kernel/|^control/(claims|images)$", nil)
	if n := len(report.Results); n < 9 {
		t.Errorf("%d tests ran: those with kernels were left out", n)
	}
	for _, r := range report.Results {
		if !r.Pass {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
}

// Defects that kernels see are found by kernels too: here a put that goes one byte too far.
func TestKernelsFindDefects(t *testing.T) {
	report := withKernels(t, "^kernel/port$", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		return func(d kernel.Trigger, _ uint64) ([]kernel.Trigger, bool) {
			if d.Kind()&kernel.TriggerData != 0 {
				d = changed(d, func(f *kernel.TriggerFields) { f.To++ })
			}
			return []kernel.Trigger{d}, false
		}
	}))
	if report.Failed() != 1 || !strings.Contains(report.Results[0].Error, "expected") {
		t.Errorf("%s: %+v", report.Summary(), report.Results)
	}
}

// A kernel that waits for a signal that was lost does not outlive its test.
func TestLostSignalEndsWithTheTest(t *testing.T) {
	report := withKernels(t, "^kernel/port$", meddling(func() func(kernel.Trigger, uint64) ([]kernel.Trigger, bool) {
		return func(d kernel.Trigger, pos uint64) ([]kernel.Trigger, bool) {
			if d.Kind() == kernel.TriggerSignal && pos > 20 {
				return nil, false
			}
			return []kernel.Trigger{d}, false
		}
	}))
	if report.Failed() != 1 || !strings.Contains(report.Results[0].Error, "the kernel completed") {
		t.Errorf("%s: %+v", report.Summary(), report.Results)
	}
}
