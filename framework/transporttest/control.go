package transporttest

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

var controlTests = []test{
	{name: "control/describe", bare: true, body: testDescribe},
	{name: "control/claims", bare: true, body: testClaims},
	{name: "control/unclaimed", bare: true, body: testUnclaimed},
	{name: "control/probe", bare: true, when: func(c claims) bool { return c.Probe }, body: testProbe},
	{name: "control/images", bare: true, when: func(c claims) bool { return len(c.Images) > 0 }, body: testImages},
	{name: "control/other-memory", bare: true, when: func(c claims) bool { return c.memory.lacks != "" }, body: testOtherMemory},
	{name: "control/register", body: testRegister},
	{name: "control/register-bad", body: testRegisterBad},
	{name: "control/listen", body: testListen},
	{name: "control/listen-bad", bare: true, body: testListenBad},
	{name: "control/reach", body: testReach},
	{name: "control/unknown-ids", body: testUnknownIDs},
	{name: "control/close", body: testClose},
	{name: "control/use-after-close", body: testUseAfterClose},
	{name: "control/canceled", body: testCanceled},
	{name: "control/concurrent", body: testConcurrentControl},
}

// wantClass checks that err belongs to one of the classes.
func (t *T) wantClass(what string, err error, classes ...error) {
	for _, c := range classes {
		if errors.Is(err, c) {
			return
		}
	}
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = c.Error()
	}
	if err == nil {
		t.Errorf("%s: accepted; want an error of class %s", what, strings.Join(names, " or "))
	} else {
		t.Errorf("%s: %v; want class %s", what, err, strings.Join(names, " or "))
	}
}

func testDescribe(t *T) {
	r := t.rank(0)
	first, err := r.Describe(t.ctx)
	if err != nil {
		t.Fatalf("describe: %v", err)
	}
	// Other calls must not change the answer, nor may another instance differ.
	r.alloc(4096)
	second, err := r.Describe(t.ctx)
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("the second answer differs from the first: %+v, %v; first %+v", second, err, first)
	}
	other, err := t.rank(1).Describe(t.ctx)
	if err != nil || !reflect.DeepEqual(first, other) {
		t.Errorf("another instance answers differently: %+v, %v; first %+v", other, err, first)
	}
}

var (
	validName    = onfirstuse.Regexp(`^[a-z][a-z0-9-]*$`)
	validVersion = onfirstuse.Regexp(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	validHash    = onfirstuse.Regexp(`^[0-9a-f]{64}$`)
)

// testClaims checks that the claims agree with each other.
func testClaims(t *T) {
	d := t.claims
	if !validName().MatchString(d.Name) {
		t.Errorf("name %q: want lower case letters, digits and hyphens", d.Name)
	}
	if !validVersion().MatchString(d.Version) {
		t.Errorf("version %q: want a semantic version such as 1.2.3", d.Version)
	}
	if len(d.Channels) == 0 {
		t.Errorf("no kind of channel is claimed")
	}
	seen := map[framework.Kind]bool{}
	for _, k := range d.Channels {
		if _, err := framework.ParseKind(k.String()); err != nil || seen[k] {
			t.Errorf("channel %v is unknown or claimed twice", k)
		}
		seen[k] = true
	}
	switch d.Signal {
	case framework.SignalDirect, framework.SignalMultimem, framework.SignalAtomic, framework.SignalImmediate, framework.SignalProxy:
	default:
		t.Errorf("signal %q is unknown", d.Signal)
	}
	for _, n := range d.Needs {
		if n != framework.NeedMemFD && n != framework.NeedDMABuf && n != framework.NeedVMM {
			t.Errorf("need %q is unknown", n)
		}
	}
	if d.Has(framework.KindPort) != (d.Proxy != framework.ProxyNone) {
		t.Errorf("channels %v and proxy %q disagree: port channels have a proxy, others none", d.Channels, d.Proxy)
	}
	if d.Links < 0 || d.Links > framework.MostLinks || d.Links > 1 && !d.Has(framework.KindPort) {
		t.Errorf("%d links to one peer: want 0 to %d, and more than one for port channels only", d.Links, framework.MostLinks)
	}
	families := map[string]bool{}
	ids := map[string]bool{}
	for _, i := range d.Images {
		families[i.Family] = true
		if ids[i.ID] || i.ID == "" {
			t.Errorf("image id %q is empty or claimed twice", i.ID)
		}
		ids[i.ID] = true
		if i.SHA256 != "" && !validHash().MatchString(i.SHA256) {
			t.Errorf("image %s: sha256 %q is not lower-case hexadecimal", i.ID, i.SHA256)
		}
	}
	for _, k := range d.Kernels {
		if !families[k.Family] {
			t.Errorf("kernel %s is of family %q, of which there is no image", k.Symbol, k.Family)
		}
	}
}

// testUnclaimed checks the other direction: what is not claimed is refused as
// unsupported, so that a caller can trust the description alone.
func testUnclaimed(t *T) {
	r := t.rank(0)
	for _, kind := range []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch} {
		if t.claims.Has(kind) {
			continue
		}
		end, err := r.Listen(t.ctx, r.config(kind, 0, 1))
		t.wantClass("listen for an unclaimed "+kind.String()+" link", err, framework.ErrUnsupported)
		if err == nil {
			_ = end.Address.Close()
		}
	}
	if !t.claims.Probe {
		_, err := r.Probe(t.ctx, t.o.Facts)
		t.wantClass("unclaimed probe", err, framework.ErrUnsupported)
	}
	if t.claims.Proxy != framework.ProxyPlugin {
		_, err := r.NewProxy(t.ctx)
		t.wantClass("unclaimed proxy", err, framework.ErrUnsupported)
	}
	if len(t.claims.Images) == 0 {
		_, err := r.Image(t.ctx, "any")
		t.wantClass("unclaimed image", err, framework.ErrUnsupported)
	}
}

func testProbe(t *T) {
	live, err := t.rank(0).Probe(t.ctx, t.o.Facts)
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if !live.Available && live.Reason == "" {
		t.Errorf("not available, and no reason that says what to do")
	}
}

// testCanceled checks that a call whose context has ended comes back, and that a
// call that failed so has kept nothing that disturbs the next.
func testCanceled(t *T) {
	r := t.rank(0)
	b := r.alloc(4096)
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	start := time.Now()
	if reg, err := r.Register(ctx, b.segment); err == nil {
		_ = reg.Key.Close()
		r.release(reg.ID)
	}
	if end, err := r.Listen(ctx, r.config(t.claims.Channels[0], 0, 1)); err == nil {
		_ = end.Address.Close()
		r.release(end.ID)
	}
	if took := time.Since(start); took > grace {
		t.Errorf("two canceled calls took %v", took)
	}
	r.registered(b.segment)
}

// testConcurrentControl makes all control calls at once on one transport.
func testConcurrentControl(t *T) {
	r := t.rank(0)
	b := r.alloc(8 * 4096)
	t.all(8, func(i int) {
		for range 8 {
			if _, err := r.Describe(t.ctx); err != nil {
				t.Errorf("describe: %v", err)
			}
			reg, err := r.Register(t.ctx, b.part(uint64(i)*4096, 4096))
			if err != nil {
				t.Errorf("register: %v", err)
				return
			}
			end, err := r.Listen(t.ctx, r.config(t.claims.Channels[0], 0, 1))
			if err != nil {
				t.Errorf("listen: %v", err)
			} else {
				_ = end.Address.Close()
				r.release(end.ID)
			}
			_ = reg.Key.Close()
			r.release(reg.ID)
		}
	})
}
