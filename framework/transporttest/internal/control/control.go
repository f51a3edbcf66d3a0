package control

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

var controlTests = []harness.Test{
	{
		Name: "control/describe", Rule: "Describe answers the same whenever and whichever instance is asked.",
		Bare: true, Body: testDescribe,
	},
	{
		Name: "control/claims", Rule: "Claims agree with each other, and every name in them is one that the contract has.",
		Bare: true, Body: testClaims,
	},
	{
		Name: "control/unclaimed", Rule: "What the description does not claim fails with unsupported.",
		Bare: true, Body: testUnclaimed,
	},
	{
		Name: "control/probe", Rule: "A probe that finds nothing says what to do.",
		Bare: true, When: func(c harness.Claims) bool { return c.Probe }, Body: testProbe,
	},
	{
		Name: "control/images", Rule: "Images are those of the description, load where they should, and other ids are invalid.",
		Bare: true, When: func(c harness.Claims) bool { return len(c.Images) > 0 }, Body: testImages,
	},
	{
		Name: "control/other-memory", Rule: "Memory that the transport does not need is refused as unsupported; a missing device is unavailable.",
		Bare: true, When: func(c harness.Claims) bool { return c.Memory.Lacks != "" }, Body: testOtherMemory,
	},
	{
		Name: "control/register", Rule: "Any range of an allocation can be registered, more than once; ids are new and never 0.",
		Body: testRegister,
	},
	{
		Name: "control/register-bad", Rule: "Segments that nobody can use are refused, among them memory that its owner can shrink.",
		Body: testRegisterBad,
	},
	{
		Name: "control/listen", Rule: "Every claimed kind of link can be opened; only the root of a switch group creates objects.",
		Body: testListen,
	},
	{
		Name: "control/listen-bad", Rule: "Configurations that make no sense, and unknown kinds, are refused.",
		Bare: true, Body: testListenBad,
	},
	{
		Name: "control/reach", Rule: "Two endpoints that can be connected share a reach token; tokens do not change.",
		Body: testReach,
	},
	{
		Name: "control/unknown-ids", Rule: "Ids that were never made, or name something else, are invalid.",
		Body: testUnknownIDs,
	},
	{
		Name: "control/close", Rule: "Close works in any order, any number of times, and on unknown ids.",
		Body: testClose,
	},
	{
		Name: "control/use-after-close", Rule: "What was closed cannot be used; closing an endpoint ends its connections.",
		Body: testUseAfterClose,
	},
	{
		Name: "control/canceled", Rule: "A canceled call comes back, and keeps nothing.",
		Body: testCanceled,
	},
	{
		Name: "control/concurrent", Rule: "All calls may come concurrently.",
		Body: testConcurrentControl,
	},
}

func testDescribe(t *harness.T) {
	r := t.Rank(0)
	first, err := r.Describe(t.Context())
	if err != nil {
		t.Fatalf("describe: %v", err)
	}
	// Other calls must not change the answer, nor may another instance differ.
	r.Alloc(4096)
	second, err := r.Describe(t.Context())
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("the second answer differs from the first: %+v, %v; first %+v", second, err, first)
	}
	other, err := t.Rank(1).Describe(t.Context())
	if err != nil || !reflect.DeepEqual(first, other) {
		t.Errorf("another instance answers differently: %+v, %v; first %+v", other, err, first)
	}
}

var (
	validName      = onfirstuse.Regexp(`^[a-z][a-z0-9-]*$`)
	validAlgorithm = onfirstuse.Regexp(`^[a-z][a-z0-9_-]*$`)
	validVersion   = onfirstuse.Regexp(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	validHash      = onfirstuse.Regexp(`^[0-9a-f]{64}$`)
)

// testClaims checks that the claims agree with each other.
func testClaims(t *harness.T) {
	d := t.Claims
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
		claimsOfKernel(t, k)
	}
}

// claimsOfKernel checks that every name in what is claimed for a kernel is one that a
// caller can look up. Algorithms are the vendor's own.
func claimsOfKernel(t *harness.T, k framework.KernelInfo) {
	if k.Symbol == "" {
		t.Errorf("a kernel of family %q has no symbol", k.Family)
	}
	if k.Collective != "" {
		if !slices.Contains(kernellist.Collectives(), k.Collective) {
			t.Errorf("kernel %s: collective %q is unknown", k.Symbol, k.Collective)
		}
		if !validAlgorithm().MatchString(k.Algorithm) {
			t.Errorf("kernel %s: algorithm %q: want lower case letters, digits, hyphens and underscores", k.Symbol, k.Algorithm)
		}
	}
	for _, name := range k.Types {
		if typ, err := kernel.ParseDataType(name); err != nil || typ.String() != name {
			t.Errorf("kernel %s: element type %q is unknown", k.Symbol, name)
		}
	}
	for _, name := range k.Ops {
		if op, err := kernel.ParseOp(name); err != nil || op.String() != name {
			t.Errorf("kernel %s: reduction %q is unknown", k.Symbol, name)
		}
	}
	for _, kind := range k.Channels {
		if !t.Claims.Has(kind) {
			t.Errorf("kernel %s uses %v channels, which are not claimed", k.Symbol, kind)
		}
	}
	if k.MaxRanks < 0 || k.MaxThreads < 0 {
		t.Errorf("kernel %s: at most %d ranks and %d threads: want 0 or more", k.Symbol, k.MaxRanks, k.MaxThreads)
	}
}

// testUnclaimed checks the other direction: what is not claimed is refused as
// unsupported, so that a caller can trust the description alone.
func testUnclaimed(t *harness.T) {
	r := t.Rank(0)
	for _, kind := range []framework.Kind{framework.KindMemory, framework.KindPort, framework.KindSwitch} {
		if t.Claims.Has(kind) {
			continue
		}
		end, err := r.Listen(t.Context(), r.Config(kind, 0, 1))
		t.WantClass("listen for an unclaimed "+kind.String()+" link", err, framework.ErrUnsupported)
		if err == nil {
			_ = end.Address.Close()
		}
	}
	if !t.Claims.Probe {
		_, err := r.Probe(t.Context(), t.Options.Facts)
		t.WantClass("unclaimed probe", err, framework.ErrUnsupported)
	}
	if t.Claims.Proxy != framework.ProxyPlugin {
		_, err := r.NewProxy(t.Context())
		t.WantClass("unclaimed proxy", err, framework.ErrUnsupported)
	}
	if len(t.Claims.Images) == 0 {
		_, err := r.Image(t.Context(), "any")
		t.WantClass("unclaimed image", err, framework.ErrUnsupported)
	}
}

func testProbe(t *harness.T) {
	live, err := t.Rank(0).Probe(t.Context(), t.Options.Facts)
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if !live.Available && live.Reason == "" {
		t.Errorf("not available, and no reason that says what to do")
	}
}

// testCanceled checks that a call whose context has ended comes back, and that a
// call that failed so has kept nothing that disturbs the next.
func testCanceled(t *harness.T) {
	r := t.Rank(0)
	b := r.Alloc(4096)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if reg, err := r.Register(ctx, b.Segment); err == nil {
		_ = reg.Key.Close()
		r.Release(reg.ID)
	}
	if end, err := r.Listen(ctx, r.Config(t.Claims.Channels[0], 0, 1)); err == nil {
		_ = end.Address.Close()
		r.Release(end.ID)
	}
	if took := time.Since(start); took > harness.Grace {
		t.Errorf("two canceled calls took %v", took)
	}
	r.Registered(b.Segment)
}

// testConcurrentControl makes all control calls at once on one transport.
func testConcurrentControl(t *harness.T) {
	r := t.Rank(0)
	b := r.Alloc(8 * 4096)
	t.All(8, func(i int) {
		for range 8 {
			if _, err := r.Describe(t.Context()); err != nil {
				t.Errorf("describe: %v", err)
			}
			reg, err := r.Register(t.Context(), b.Part(uint64(i)*4096, 4096))
			if err != nil {
				t.Errorf("register: %v", err)
				return
			}
			end, err := r.Listen(t.Context(), r.Config(t.Claims.Channels[0], 0, 1))
			if err != nil {
				t.Errorf("listen: %v", err)
			} else {
				_ = end.Address.Close()
				r.Release(end.ID)
			}
			_ = reg.Key.Close()
			r.Release(reg.ID)
		}
	})
}
