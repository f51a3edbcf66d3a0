package transporttest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// broken is the reference transport with one defect: a nil function leaves the
// original behavior.
type broken struct {
	*loopback.Transport
	describe func(framework.Description) framework.Description
	register func(context.Context, framework.Segment) (framework.Registration, error)
	listen   func(context.Context, framework.EndpointConfig) (framework.Endpoint, error)
	attach   func(framework.Attachment, []framework.Parcel, error) (framework.Attachment, error)
	close    func(context.Context, framework.ID) error
	proxy    func(framework.Proxy) framework.Proxy
}

func (b *broken) Describe(ctx context.Context) (framework.Description, error) {
	d, err := b.Transport.Describe(ctx)
	if b.describe != nil {
		d = b.describe(d)
	}
	return d, err
}

func (b *broken) Register(ctx context.Context, s framework.Segment) (framework.Registration, error) {
	if b.register != nil {
		return b.register(ctx, s)
	}
	return b.Transport.Register(ctx, s)
}

func (b *broken) Listen(ctx context.Context, c framework.EndpointConfig) (framework.Endpoint, error) {
	if b.listen != nil {
		return b.listen(ctx, c)
	}
	return b.Transport.Listen(ctx, c)
}

func (b *broken) Attach(ctx context.Context, conn, local framework.ID, keys []framework.Parcel) (framework.Attachment, error) {
	a, err := b.Transport.Attach(ctx, conn, local, keys)
	if b.attach != nil {
		return b.attach(a, keys, err)
	}
	return a, err
}

func (b *broken) Close(ctx context.Context, id framework.ID) error {
	if b.close != nil {
		return b.close(ctx, id)
	}
	return b.Transport.Close(ctx, id)
}

// defect is one planted mistake, the test that has to find it, and a part of what
// that test has to say.
type defect struct {
	name, test, wanted string
	plant              func(b *broken)
}

var described atomic.Int64

var controlDefects = []defect{
	{"describe changes", "control/describe", "differs", func(b *broken) {
		b.describe = func(d framework.Description) framework.Description {
			d.Version = fmt.Sprintf("1.0.%d", described.Add(1))
			return d
		}
	}},
	{"unknown claims", "control/claims", "signal", func(b *broken) {
		b.describe = func(d framework.Description) framework.Description { d.Signal = "semaphore flags"; return d }
	}},
	{"offers what it does not claim", "control/unclaimed", "unclaimed switch", func(b *broken) {
		b.describe = func(d framework.Description) framework.Description {
			d.Channels = []framework.Kind{framework.KindMemory}
			d.Proxy = framework.ProxyNone
			return d
		}
	}},
	{"panics", "control/register", "panic: no such luck", func(b *broken) {
		b.register = func(context.Context, framework.Segment) (framework.Registration, error) { panic("no such luck") }
	}},
	{"hangs", "control/listen", "hung", func(b *broken) {
		b.listen = func(context.Context, framework.EndpointConfig) (framework.Endpoint, error) { select {} }
	}},
	{"errors of no class", "control/listen-bad", "error of no class", func(b *broken) {
		b.listen = func(ctx context.Context, c framework.EndpointConfig) (framework.Endpoint, error) {
			e, err := b.Transport.Listen(ctx, c)
			if err != nil {
				err = errors.New(err.Error())
			}
			return e, err
		}
	}},
	{"checks no range", "control/register-bad", "beyond the end: accepted", func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			r, err := b.Transport.Register(ctx, s)
			if errors.Is(err, framework.ErrInvalid) && len(s.Shares) > 0 {
				s.Offset, s.Bytes = 0, 1
				return b.Transport.Register(ctx, s)
			}
			return r, err
		}
	}},
	{"reuses ids", "control/register", "again", func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			r, err := b.Transport.Register(ctx, s)
			r.ID = 7
			return r, err
		}
	}},
	{"no reach", "control/reach", "no reach tokens", func(b *broken) {
		b.listen = func(ctx context.Context, c framework.EndpointConfig) (framework.Endpoint, error) {
			e, err := b.Transport.Listen(ctx, c)
			e.Reach = nil
			return e, err
		}
	}},
	{"closes once", "control/close", "want no error", func(b *broken) {
		closed := map[framework.ID]bool{}
		b.close = func(ctx context.Context, id framework.ID) error {
			if closed[id] {
				return framework.ErrInvalid
			}
			closed[id] = true
			return b.Transport.Close(ctx, id)
		}
	}},
	{"never frees", "control/use-after-close", "accepted", func(b *broken) {
		b.close = func(context.Context, framework.ID) error { return nil }
	}},
}

var ownershipDefects = []defect{
	{"leaks a descriptor", "ownership/descriptors", "more descriptors of this process", func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			r, err := b.Transport.Register(ctx, s)
			forgotten, _ := r.Key.Dup()
			leaked = append(leaked, forgotten)
			return r, err
		}
	}},
	{"leaks on errors", "ownership/descriptors-after-errors", "more descriptors of this process", func(b *broken) {
		b.attach = func(a framework.Attachment, keys []framework.Parcel, err error) (framework.Attachment, error) {
			if err != nil {
				forgotten, _ := keys[0].Dup()
				leaked = append(leaked, forgotten)
			}
			return a, err
		}
	}},
	{"closes what it was lent", "ownership/borrowed", "closed a descriptor that it was lent", func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			defer framework.Parcel{Shares: s.Shares}.Close()
			return b.Transport.Register(ctx, s)
		}
	}},
	{"hands on what it was lent", "ownership/borrowed", "instead of a duplicate", func(b *broken) {
		b.attach = func(a framework.Attachment, keys []framework.Parcel, err error) (framework.Attachment, error) {
			if err == nil && len(a.Mappings) > 0 && a.Mappings[0].Role == framework.RolePeer {
				a.Mappings[0].Shares[0].Close()
				a.Mappings[0].Shares = keys[0].Shares
			}
			return a, err
		}
	}},
	{"shares with an error", "parcels/keys", "shares that nobody will close", func(b *broken) {
		b.attach = func(a framework.Attachment, keys []framework.Parcel, err error) (framework.Attachment, error) {
			if err != nil && len(keys[0].Shares) > 0 {
				p, _ := keys[0].Dup()
				a.Mappings = []framework.Mapping{{Shares: p.Shares}}
			}
			return a, err
		}
	}},
	{"accepts malformed keys", "parcels/keys", "accepted", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			return a, nil
		}
	}},
	{"maps beyond the memory", "parcels/keys", "of a file of", func(b *broken) {
		b.attach = func(a framework.Attachment, keys []framework.Parcel, err error) (framework.Attachment, error) {
			if err != nil && len(keys[0].Data) == 28 && len(keys[0].Shares) == 1 {
				p, _ := keys[0].Dup()
				return framework.Attachment{Mappings: []framework.Mapping{{
					Role: framework.RolePeer, Shares: p.Shares, Offset: 1 << 30, Bytes: 1,
				}}}, nil
			}
			return a, err
		}
	}},
}

// leaked keeps what a defect forgets from being closed by the collector.
var leaked []framework.Parcel

var dataDefects = []defect{
	{"forgets the offset", "memory/ranges", "went elsewhere", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			if len(a.Mappings) > 0 {
				a.Mappings[0].Offset = 0
			}
			return a, err
		}
	}},
	{"maps other memory", "memory/put-get", "wrong at the owner", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			if len(a.Mappings) > 0 && a.Mappings[0].Role == framework.RolePeer {
				a.Mappings[0].Shares = append([]framework.Share{strange(a.Mappings[0].Bytes)}, a.Mappings[0].Shares...)
			}
			return a, err
		}
	}},
	{"maps before it binds", "switch/broadcast", "not bound", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			for i := range a.Steps {
				if a.Steps[i].Op == framework.StepBind && i > 0 {
					a.Steps[i], a.Steps[len(a.Steps)-1] = a.Steps[len(a.Steps)-1], a.Steps[i]
					break
				}
			}
			return a, err
		}
	}},
	{"swaps members", "switch/broadcast", "is wrong", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			for i := range a.Steps { // bind the own memory twice
				if a.Steps[i].Op == framework.StepBind {
					if a.Steps[i].Share != nil {
						a.Steps[i].Share.Close()
					}
					a.Steps[i].Share = nil
				}
			}
			return a, err
		}
	}},
	{"a verb of its own", "switch/broadcast", "not in the contract", func(b *broken) {
		b.attach = func(a framework.Attachment, _ []framework.Parcel, err error) (framework.Attachment, error) {
			if len(a.Steps) > 0 {
				a.Steps[len(a.Steps)-1].Op = 77
			}
			return a, err
		}
	}},
}

// strange is memory that nobody registered.
func strange(bytes uint64) framework.Share {
	s, err := sealed(bytes)
	if err != nil {
		panic(err)
	}
	return s
}

// TestSuiteFindsDefects runs the test that has to find each defect, and wants it
// to fail and say why.
func TestSuiteFindsDefects(t *testing.T) {
	for _, list := range [][]defect{controlDefects, ownershipDefects, dataDefects} {
		for _, d := range list {
			t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) { findDefect(t, d) })
		}
	}
	for _, p := range leaked {
		p.Close()
	}
	leaked = nil
}

// Descriptors that the other end closes a moment later are no leak.
func TestDescriptorsThatCloseLateAreNoLeak(t *testing.T) {
	report := suiteOn(t, "ownership/descriptors", 10*time.Second, func(b *broken) {
		b.register = func(ctx context.Context, s framework.Segment) (framework.Registration, error) {
			r, err := b.Transport.Register(ctx, s)
			late, _ := r.Key.Dup()
			time.AfterFunc(200*time.Millisecond, func() { _ = late.Close() })
			return r, err
		}
	})
	if r := report.Results[0]; !r.Pass {
		t.Error(r.Error)
	}
}

// waiting are the defects that show as a wait for what never comes. The others get
// all the time that a busy machine may need.
var waiting = map[string]bool{"hangs": true, "loses a signal": true, "hangs when the peer leaves": true}

// patience is how long a test waits for what a planted defect keeps from coming: no good call takes as long on a busy machine.
const patience = 3 * time.Second

// suiteOn runs one test on a transport with a planted defect.
func suiteOn(t *testing.T, name string, limit time.Duration, plant func(*broken)) transporttest.Report {
	t.Helper()
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			b := &broken{Transport: loopback.New()}
			plant(b)
			return transporttest.Embedded(b), nil
		},
		Match:     regexp.MustCompile("^" + name + "$"),
		CallLimit: limit,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 1 {
		t.Fatalf("%d tests are called %s", len(report.Results), name)
	}
	return report
}

// A transport that cannot do yet what its plugin is to be killed in fails at once,
// and not when the time of the test is over.
func TestCallsThatFailBeforeTheDeath(t *testing.T) {
	const nobody = 1 << 30 // more than the system numbers processes
	start := time.Now()
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			b := &broken{Transport: loopback.New(), register: func(context.Context, framework.Segment) (framework.Registration, error) {
				return framework.Registration{}, framework.ErrUnsupported
			}}
			alive := &transporttest.Process{PID: nobody, Gone: make(chan struct{}), Err: func() error { return nil }}
			return &transporttest.Side{Transport: b, Process: alive}, nil
		},
		Match: regexp.MustCompile("^failure/plugin-killed-in-calls$"), TestLimit: time.Minute,
	})
	if err != nil || len(report.Results) != 1 {
		t.Fatalf("%d results, %v", len(report.Results), err)
	}
	if r := report.Results[0]; r.Pass || !strings.Contains(r.Error, "while the plugin was alive") || time.Since(start) > 50*time.Second {
		t.Errorf("pass %v after %v: %s", r.Pass, time.Since(start), r.Error)
	}
}

func findDefect(t *testing.T, d defect) {
	limit := 10 * time.Second
	if waiting[d.name] {
		limit = patience
	}
	report := suiteOn(t, d.test, limit, d.plant)
	r := report.Results[0]
	if r.Pass || !strings.Contains(r.Error, d.wanted) {
		t.Errorf("%s did not find it: pass %v, findings:\n%s\nwant %q", d.test, r.Pass, r.Error, d.wanted)
	}
}

// The good transport passes, outside go test too, and the report says so.
func TestReport(t *testing.T) {
	var progress int
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			return transporttest.Embedded(loopback.New()), nil
		},
		Match:    regexp.MustCompile("^control/"),
		Known:    map[string]string{"control/reach": "pretended"},
		Progress: func(transporttest.Result) { progress++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if report.Transport != "loopback 1.0.0" || progress != len(report.Results) {
		t.Errorf("transport %q, %d results told of %d", report.Transport, progress, len(report.Results))
	}
	// A known defect that passes is the one failure.
	if report.Failed() != 1 || report.Passed() != len(report.Results)-1 {
		t.Errorf("%s", report.Summary())
	}
	var text, lines strings.Builder
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	printed := strings.Split(strings.TrimSpace(text.String()), "\n")
	if last := printed[len(printed)-1]; last != fmt.Sprintf("%d passed, 1 failed", report.Passed()) {
		t.Errorf("last line %q", last)
	}
	if !strings.Contains(text.String(), "remove it from the list (pretended)") {
		t.Errorf("the report does not explain the failure:\n%s", text.String())
	}
	if err := report.PrintJSON(&lines); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(lines.String(), "\n"); n != len(report.Results)+1 {
		t.Errorf("%d JSON lines for %d results and a total", n, len(report.Results))
	}
}

func TestKnownDefectIsExpected(t *testing.T) {
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			b := &broken{Transport: loopback.New()}
			b.close = func(context.Context, framework.ID) error { return nil }
			return transporttest.Embedded(b), nil
		},
		Match: regexp.MustCompile("^control/use-after-close$"),
		Known: map[string]string{"control/use-after-close": "frees at exit"},
	})
	if err != nil || report.Failed() != 0 || report.Results[0].Known == "" || report.Results[0].Error == "" {
		t.Errorf("%v, %+v: want an expected failure with its findings", err, report)
	}
}

func TestSuiteNeedsASide(t *testing.T) {
	_, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) { return nil, os.ErrNotExist },
	})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Suite = %v, want the error of Open", err)
	}
}
