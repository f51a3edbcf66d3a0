package transporttest_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// Transports that are right in all but one rule of docs/writing-a-transport.md.
var ruleDefects = []defect{
	{"registers memory that can shrink", "control/register-bad", "its owner can shrink: accepted", func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			r, err := b.Transport.Register(ctx, s)
			if err != nil && strings.Contains(err.Error(), "not sealed") {
				s.Shares = []framework.Share{strange(1 << 14)}
				return b.Transport.Register(ctx, s)
			}
			return r, err
		}
	}},
	{"maps memory that can shrink", "parcels/keys", "its owner can shrink: accepted", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			if err != nil && strings.Contains(err.Error(), "not sealed") {
				return framework.Attachment{}, nil
			}
			return a, err
		}
	}},
	{"drains a ring that can shrink", "port/start", "its owner can shrink: accepted", func(b *broken) {
		b.proxy = func(p framework.Proxy) framework.Proxy { return trusting{p} }
	}},
	{"counts from the allocation", "port/segments", "byte 0 of a put between segments is wrong", func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			s.Offset = 0
			return b.Transport.Register(ctx, s)
		}
	}},
}

// trusting starts on whatever memory it is given.
type trusting struct{ framework.Proxy }

func (p trusting) Start(ctx context.Context, s framework.Share) error {
	err := p.Proxy.Start(ctx, s)
	if err != nil && strings.Contains(err.Error(), "not sealed") {
		return nil
	}
	return err
}

func TestSuiteFindsBrokenRules(t *testing.T) {
	for _, d := range ruleDefects {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) { findDefect(t, d) })
	}
}

// Names in the claims of a kernel that nobody can look up.
func TestSuiteFindsUnknownNamesOfKernels(t *testing.T) {
	good := framework.KernelInfo{
		Collective: "allreduce", Algorithm: "two-shot", Symbol: "k", Family: "f",
		Types: []string{"f32", "bf16"}, Ops: []string{"sum"}, Channels: []framework.Kind{framework.KindMemory},
	}
	claim := func(change func(*framework.KernelInfo)) func() *claimant {
		k := good
		change(&k)
		return with(func(d *framework.Description) {
			d.Images = append(d.Images, framework.ImageInfo{ID: "a", Family: "f"})
			d.Kernels = []framework.KernelInfo{k}
		})
	}
	for want, change := range map[string]func(*framework.KernelInfo){
		"has no symbol": func(k *framework.KernelInfo) { k.Symbol = "" },
		`kernel k: collective "allreduction" is unknown`:   func(k *framework.KernelInfo) { k.Collective = "allreduction" },
		`kernel k: algorithm ""`:                           func(k *framework.KernelInfo) { k.Algorithm = "" },
		`kernel k: element type "float31" is unknown`:      func(k *framework.KernelInfo) { k.Types = []string{"f32", "float31"} },
		`kernel k: reduction "median" is unknown`:          func(k *framework.KernelInfo) { k.Ops = []string{"median"} },
		"kernel k uses kind(9) channels, which are not":    func(k *framework.KernelInfo) { k.Channels = []framework.Kind{9} },
		"kernel k: at most -1 ranks and 0 threads: want 0": func(k *framework.KernelInfo) { k.MaxRanks = -1 },
	} {
		want = strings.Replace(want, "kind(9)", framework.Kind(9).String(), 1)
		if got := findings(t, "control/claims", claim(change)); !strings.Contains(got, want) {
			t.Errorf("findings %q: expected %q", got, want)
		}
	}
	if got := findings(t, "control/claims", claim(func(*framework.KernelInfo) {})); got != "" {
		t.Errorf("names that exist: %s", got)
	}
}

// Tests of the caller's own run behind the suite's, and are listed.
func TestMoreTests(t *testing.T) {
	more := transporttest.Test{Name: "mine/fails", Rule: "It may not fail.", Body: func(t transporttest.TB) {
		t.Errorf("found %d", 1)
		t.Cleanup(func() { t.Errorf("cleaned up: %v", errors.Is(t.Context().Err(), context.Canceled)) })
		t.Fatalf("found %d", 2)
	}}
	all := transporttest.List(more)
	if last := all[len(all)-1]; last.Name != more.Name || last.Rule != more.Rule {
		t.Errorf("the last entry is %+v", last)
	}
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.Name] || e.Rule == "" || !strings.HasSuffix(e.Rule, ".") {
			t.Errorf("entry %+v: expected a name of its own, and a rule that is a sentence", e)
		}
		seen[e.Name] = true
	}
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			return transporttest.Embedded(loopback.New()), nil
		},
		Match: regexp.MustCompile("^mine/"), More: []transporttest.Test{more},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 1 || report.Results[0].Pass || report.Results[0].Error != "found 1\nfound 2\ncleaned up: false" {
		t.Errorf("results %+v", report.Results)
	}
}
