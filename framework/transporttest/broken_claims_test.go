package transporttest_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// claimant is the reference transport with other claims, and with the optional calls
// that go with them.
type claimant struct {
	broken
	probe func() (framework.Live, error)
	image func(id string) ([]byte, error)
}

func (c *claimant) Probe(context.Context, framework.Facts) (framework.Live, error) { return c.probe() }
func (c *claimant) Image(_ context.Context, id string) ([]byte, error)             { return c.image(id) }

// findings runs one test on a claimant.
func findings(t *testing.T, test string, c func() *claimant) string {
	t.Helper()
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open:      func(context.Context) (*transporttest.Side, error) { return transporttest.Embedded(c()), nil },
		Match:     regexp.MustCompile("^" + test + "$"),
		CallLimit: 10 * time.Second,
	})
	if err != nil || len(report.Results) != 1 {
		t.Fatalf("%s: %d results, %v", test, len(report.Results), err)
	}
	if r := report.Results[0]; r.Pass == (r.Error != "") {
		t.Errorf("%s: pass %v with findings %q", test, r.Pass, r.Error)
	}
	return report.Results[0].Error
}

// with is a claimant whose description was changed.
func with(change func(*framework.Description)) func() *claimant {
	return func() *claimant {
		return &claimant{broken: broken{Transport: loopback.New(), describe: func(d framework.Description) framework.Description {
			change(&d)
			return d
		}}}
	}
}

// Claims that no caller could work with, or that contradict each other.
func TestSuiteFindsWrongClaims(t *testing.T) {
	image := func(id, sum string) framework.ImageInfo { return framework.ImageInfo{ID: id, Family: "f", SHA256: sum} }
	for want, change := range map[string]func(*framework.Description){
		`name "Loop_Back": want`:          func(d *framework.Description) { d.Name = "Loop_Back" },
		`version "1": want`:               func(d *framework.Description) { d.Version = "1" },
		"unknown or claimed twice":        func(d *framework.Description) { d.Channels = append(d.Channels, d.Channels[0]) },
		"channel kind(9) is unknown":      func(d *framework.Description) { d.Channels = append(d.Channels, 9) },
		"no kind of channel":              func(d *framework.Description) { d.Channels, d.Proxy = nil, framework.ProxyNone },
		`need "luck" is unknown`:          func(d *framework.Description) { d.Needs = []framework.Need{"luck"} },
		"65 links to one peer":            func(d *framework.Description) { d.Links = 65 },
		"port channels have a proxy":      func(d *framework.Description) { d.Proxy = framework.ProxyNone },
		`image id "" is empty`:            func(d *framework.Description) { d.Images = append(d.Images, image("", "")) },
		`image id "a" is empty or`:        func(d *framework.Description) { d.Images = append(d.Images, image("a", ""), image("a", "")) },
		`sha256 "ABC" is not lower-case`:  func(d *framework.Description) { d.Images = append(d.Images, image("a", "ABC")) },
		`kernel k is of family "nowhere"`: func(d *framework.Description) { d.Kernels = []framework.KernelInfo{{Symbol: "k", Family: "nowhere"}} },
	} {
		if got := findings(t, "control/claims", with(change)); !strings.Contains(got, strings.Replace(want, "kind(9)", framework.Kind(9).String(), 1)) {
			t.Errorf("findings %q: expected %q", got, want)
		}
	}
	if got := findings(t, "control/claims", with(func(*framework.Description) {})); got != "" {
		t.Errorf("a good description: %s", got)
	}
}

func TestSuiteFindsWrongProbes(t *testing.T) {
	for want, probe := range map[string]func() (framework.Live, error){
		"":                    func() (framework.Live, error) { return framework.Live{Available: true}, nil },
		"no reason that says": func() (framework.Live, error) { return framework.Live{}, nil },
		"probe: unavailable":  func() (framework.Live, error) { return framework.Live{}, framework.ErrUnavailable },
	} {
		got := findings(t, "control/probe", func() *claimant {
			c := with(func(d *framework.Description) { d.Probe = true })()
			c.probe = probe
			return c
		})
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("findings %q: expected %q", got, want)
		}
	}
}

// A transport that panics before it has said what it is costs an error, not the program.
func TestSuiteSurvivesPanics(t *testing.T) {
	for _, plant := range []func(*claimant){
		func(c *claimant) { c.probe = func() (framework.Live, error) { panic("no such luck") } },
		func(c *claimant) {
			c.describe = func(framework.Description) framework.Description { panic("no such luck") }
		},
	} {
		report, err := transporttest.Suite(t.Context(), transporttest.Options{Open: func(context.Context) (*transporttest.Side, error) {
			c := with(func(d *framework.Description) { d.Probe = true })()
			plant(c)
			return transporttest.Embedded(c), nil
		}})
		if err == nil || !strings.Contains(err.Error(), "panic: no such luck") || len(report.Results) != 0 {
			t.Errorf("%v, %d results: expected an error that quotes the panic", err, len(report.Results))
		}
	}
}

// Images are compared with what is said of them, and loaded.
func TestSuiteFindsWrongImages(t *testing.T) {
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	arch := dev.Info().Archs[0]
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	data := []byte("no image at all")
	sum := sha256.Sum256(data)
	good := framework.ImageInfo{ID: "i", Family: "f", Arch: "elsewhere", ABI: kernel.ABI, SHA256: hex.EncodeToString(sum[:]), Bytes: uint64(len(data))}
	serve := func(id string) ([]byte, error) {
		if id != "i" {
			return nil, framework.ErrInvalid
		}
		return data, nil
	}
	for _, c := range []struct {
		want   string
		change func(*framework.ImageInfo)
		serve  func(string) ([]byte, error)
	}{
		{"", func(*framework.ImageInfo) {}, serve},
		{"image i has ABI", func(i *framework.ImageInfo) { i.ABI++ }, serve},
		{"another checksum", func(i *framework.ImageInfo) { i.SHA256 = strings.Repeat("0", 64) }, serve},
		{"its description says 3", func(i *framework.ImageInfo) { i.Bytes = 3 }, serve},
		{"image i does not load", func(i *framework.ImageInfo) { i.Arch = arch }, serve},
		{"image i is empty", func(*framework.ImageInfo) {}, func(id string) ([]byte, error) {
			_, err := serve(id)
			return nil, err
		}},
		{"image ../i: ", func(*framework.ImageInfo) {}, func(string) ([]byte, error) { return data, nil }},
		{"image i: ", func(*framework.ImageInfo) {}, func(id string) ([]byte, error) {
			_, err := serve(id)
			if err == nil {
				err = framework.ErrUnavailable // of one that has a checksum, so it is there
			}
			return nil, err
		}},
		{"", func(i *framework.ImageInfo) { i.SHA256 = "" }, func(id string) ([]byte, error) {
			_, err := serve(id)
			if err == nil {
				err = framework.ErrUnavailable // claimed, and not built on this machine
			}
			return nil, err
		}},
	} {
		info := good
		c.change(&info)
		got := findings(t, "control/images", func() *claimant {
			x := with(func(d *framework.Description) { d.Images = []framework.ImageInfo{info} })()
			x.image = c.serve
			return x
		})
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("findings %q: expected %q", got, c.want)
		}
	}
}

// Calls whose context has ended return at once, and leave nothing behind.
func TestSuiteFindsLateReturns(t *testing.T) {
	released := make(chan struct{})
	defer close(released)
	report := suiteOn(t, "control/canceled", patience, func(b *broken) {
		b.listen = func(ctx context.Context, c framework.EndpointConfig) (framework.Endpoint, error) {
			if ctx.Err() != nil {
				<-released
			}
			return b.Transport.Listen(ctx, c)
		}
	})
	if r := report.Results[0]; r.Pass || !strings.Contains(r.Error, "listen") {
		t.Errorf("a canceled call that hangs: pass %v, %q", r.Pass, r.Error)
	}
}

// Calls that are made at once and fail are findings, each with its call.
func TestSuiteFindsFailuresUnderLoad(t *testing.T) {
	for op, plant := range map[string]func(*broken){
		"register: ": func(b *broken) {
			b.register = func(context.Context, framework.Segment) (framework.Registration, error) {
				return framework.Registration{}, framework.ErrUnavailable
			}
		},
		"listen: ": func(b *broken) {
			b.listen = func(context.Context, framework.EndpointConfig) (framework.Endpoint, error) {
				return framework.Endpoint{}, framework.ErrUnavailable
			}
		},
	} {
		if r := suiteOn(t, "control/concurrent", 10*time.Second, plant).Results[0]; r.Pass || !strings.Contains(r.Error, op) {
			t.Errorf("pass %v, %q: expected %q", r.Pass, r.Error, op)
		}
	}
}
