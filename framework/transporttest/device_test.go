package transporttest_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// On devices whose memory the host cannot address the suite looks through copies.
func TestSuiteOnADevice(t *testing.T) {
	report := onFakes(t, "^(control|parcels|ownership|memory|device)/", nil)
	ran := map[string]int{}
	for _, r := range report.Results {
		part, _, _ := strings.Cut(r.Name, "/")
		ran[part]++
		if !r.Pass {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
	if ran["device"] < 6 || ran["memory"] != 0 || ran["parcels"] == 0 || ran["ownership"] == 0 || report.Left != 0 {
		t.Errorf("tests that ran: %v, left %d: expected those of devices instead of those of the host's memory", ran, report.Left)
	}
}

// The tests find a recipe that reaches other memory than it should.
func TestSuiteOnADeviceFindsFaults(t *testing.T) {
	for name, spoil := range map[string]func(*framework.Mapping){
		"device/ranges":  func(m *framework.Mapping) { m.Offset = 0 },
		"device/put-get": func(m *framework.Mapping) { m.Bytes -= 8 },
	} {
		report := onFakes(t, "^"+name+"$", func(b *broken) {
			b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
				for i := range a.Mappings {
					spoil(&a.Mappings[i])
				}
				return a, err
			}
		})
		if len(report.Results) != 1 || report.Failed() != 1 {
			t.Errorf("%s: %d tests ran and %d failed: expected the fault to be found", name, len(report.Results), report.Failed())
		}
	}
}

// needy is a transport for memory that the host has not.
type needy struct {
	*loopback.Transport
	refuses bool
}

func (n needy) Describe(ctx context.Context) (framework.Description, error) {
	d, err := n.Transport.Describe(ctx)
	d.Needs, d.Probe = []framework.Need{framework.NeedVMM}, true
	return d, err
}

func (n needy) Probe(context.Context, framework.Facts) (framework.Live, error) {
	return framework.Live{Reason: "no driver in sight"}, nil
}

func (n needy) Register(ctx context.Context, s framework.Segment) (framework.Registration, error) {
	if n.refuses {
		return framework.Registration{}, fmt.Errorf("needy: %w: memory of the host", framework.ErrUnsupported)
	}
	return n.Transport.Register(ctx, s)
}

func (n needy) Listen(ctx context.Context, c framework.EndpointConfig) (framework.Endpoint, error) {
	if n.refuses && (c.Kind == framework.KindMemory || c.Kind == framework.KindPort || c.Kind == framework.KindSwitch) {
		return framework.Endpoint{}, fmt.Errorf("needy: %w: kernels on the host", framework.ErrUnsupported)
	}
	return n.Transport.Listen(ctx, c)
}

// A transport for memory that the machine has not is tested as far as that goes, and
// the report says what the rest needs.
func TestMemoryThatTheMachineLacks(t *testing.T) {
	run := func(refuses bool) transporttest.Report {
		t.Helper()
		report, err := transporttest.Suite(t.Context(), transporttest.Options{
			Open: func(context.Context) (*transporttest.Side, error) {
				return transporttest.Embedded(needy{loopback.New(), refuses}), nil
			},
			Match: regexp.MustCompile("^(control|memory)/"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	report := run(true)
	if report.Failed() != 0 || report.Left < 10 || report.Passed() < 5 {
		t.Errorf("%s\n%v", report.Summary(), report.Results)
	}
	want := fmt.Sprintf("%d passed, 0 failed; %d not run: they need memory of a GPU, exported by its driver: no driver in sight", report.Passed(), report.Left)
	if got := report.Summary(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	report = run(false)
	failed := ""
	for _, r := range report.Results {
		if !r.Pass {
			failed += r.Name + " "
		}
	}
	if failed != "control/other-memory " {
		t.Errorf("a transport that takes memory it says it cannot use fails %q, want control/other-memory", failed)
	}
}
