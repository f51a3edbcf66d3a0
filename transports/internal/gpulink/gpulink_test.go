package gpulink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

func bound(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// recorded finds the GPUs of a recorded machine.
func recorded(t testing.TB, machine string) Finder {
	t.Helper()
	root := topo.Replay(string(source(t, "framework/topo/testdata/"+machine+".machine")))
	return func(context.Context) ([]topo.GPU, error) {
		h, err := topo.Read(root, topo.Recorded(root))
		if err != nil {
			return nil, err
		}
		return h.GPUs, nil
	}
}

// source reads a file of the source tree, which test programs may have left behind.
func source(t testing.TB, path string) []byte {
	t.Helper()
	if _, err := os.Stat("../../../go.mod"); err != nil {
		t.Skipf("needs the source tree: %v", err)
	}
	return must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(path))))
}

// noDriver gives the answer of a machine without GPUs.
func noDriver(context.Context) ([]topo.GPU, error) {
	return nil, fmt.Errorf("%w: no NVIDIA driver: install it", framework.ErrUnavailable)
}

func transport(t testing.TB, find Finder, change ...func(*Options)) *Transport {
	t.Helper()
	c := Options{Shares: everyShare}
	for _, f := range change {
		f(&c)
	}
	tr := must[*Transport](t)(New(maker, c, find))
	tr.machine.lookup = func(string) (string, bool) { return "", false }
	return tr
}

func cuda(n int) framework.Device { return framework.Device{Type: "cuda", Index: n} }

// config is that of rank n, whose kernels run on GPU n, in a link of two.
func config(kind framework.Kind, n int, ranks ...int) framework.EndpointConfig {
	return framework.EndpointConfig{Kind: kind, Rank: n, Ranks: ranks, Group: "test", Device: cuda(n)}
}

func listen(t testing.TB, tr *Transport, c framework.EndpointConfig) framework.Endpoint {
	t.Helper()
	e := must[framework.Endpoint](t)(tr.Listen(bound(t), c))
	t.Cleanup(func() { tr.Close(context.Background(), e.ID) })
	return e
}

// join connects rank a of one transport to rank b of another, both ways.
func join(t testing.TB, kind framework.Kind, ta, tb *Transport, a, b int) (ab, ba framework.ID) {
	t.Helper()
	ea, eb := listen(t, ta, config(kind, a, a, b)), listen(t, tb, config(kind, b, a, b))
	ab = must[framework.ID](t)(ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: b, Address: eb.Address}}))
	ba = must[framework.ID](t)(tb.Connect(bound(t), eb.ID, []framework.Peer{{Rank: a, Address: ea.Address}}))
	return ab, ba
}

// share is one of a kind, as far as a transport can tell.
func share(t testing.TB, kind framework.ShareKind) framework.Share {
	t.Helper()
	if !kind.HasFD() {
		return framework.Share{Kind: kind, Blob: []byte("handle of " + string(kind))}
	}
	m := must[*memfd.Memory](t)(memfd.New("test", 1<<16, memfd.Options{}))
	t.Cleanup(func() { m.Close() })
	s := must[framework.Share](t)(framework.Share{Kind: kind, FD: m.File()}.Dup())
	t.Cleanup(func() { s.Close() })
	return s
}

func segment(t testing.TB, kinds ...framework.ShareKind) framework.Segment {
	t.Helper()
	s := framework.Segment{Device: cuda(0), Offset: 4096, Bytes: 8192}
	for _, k := range kinds {
		s.Shares = append(s.Shares, share(t, k))
	}
	return s
}

const (
	local  = framework.ShareLocal
	vmm    = framework.ShareVMM
	fabric = framework.ShareFabric
	legacy = framework.ShareLegacyIPC
	hostFD = framework.ShareMemFD
	dmaBuf = framework.ShareDMABuf
)

func register(t testing.TB, tr *Transport, kinds ...framework.ShareKind) framework.Registration {
	t.Helper()
	r := must[framework.Registration](t)(tr.Register(bound(t), segment(t, kinds...)))
	t.Cleanup(func() { r.Key.Close(); tr.Close(context.Background(), r.ID) })
	return r
}

func TestDescribeNeedsNoGPU(t *testing.T) {
	asked := false
	tr := transport(t, func(context.Context) ([]topo.GPU, error) { asked = true; return nil, nil })
	d := must[framework.Description](t)(tr.Describe(bound(t)))
	if d.Name != "cudaipc" || d.Proxy != framework.ProxyRank || !d.Probe || d.Signal != framework.SignalDirect ||
		!slices.Equal(d.Channels, []framework.Kind{framework.KindMemory, framework.KindPort}) {
		t.Errorf("%+v", d)
	}
	if asked {
		t.Error("to describe itself the transport looked for GPUs")
	}
}

// Registered memory keeps the shares that peers can use, in the order of the
// options, one of each kind.
func TestRegisterOrders(t *testing.T) {
	for _, c := range []struct {
		change  func(*Options)
		offered []framework.ShareKind
		want    []framework.ShareKind
	}{
		{nil, []framework.ShareKind{local, vmm}, []framework.ShareKind{local, vmm}},
		{nil, []framework.ShareKind{legacy, dmaBuf, fabric, vmm, local, vmm}, []framework.ShareKind{local, vmm, fabric, legacy}},
		{func(c *Options) { c.Shares = []string{"legacy-ipc", "vmm"} }, []framework.ShareKind{local, vmm, fabric, legacy}, []framework.ShareKind{local, legacy, vmm}},
		{nil, []framework.ShareKind{hostFD}, []framework.ShareKind{hostFD}},
	} {
		if c.change == nil {
			c.change = func(*Options) {}
		}
		tr := transport(t, recorded(t, "h200"), c.change)
		r := register(t, tr, c.offered...)
		k := must[key](t)(decodeKey(head, r.Key.Data))
		if !slices.Equal(kindsOf(r.Key.Shares), c.want) || !slices.Equal(k.kinds, c.want) || k.offset != 4096 || k.bytes != 8192 {
			t.Errorf("%v: shares %v, key %+v: want %v", c.offered, kindsOf(r.Key.Shares), k, c.want)
		}
	}
}

func TestRegisterRefuses(t *testing.T) {
	tr := transport(t, recorded(t, "h200"))
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	good := segment(t, vmm)
	with := func(change func(*framework.Segment)) framework.Segment { s := good; change(&s); return s }
	shares := func(list ...framework.Share) framework.Segment {
		return with(func(s *framework.Segment) { s.Shares = list })
	}
	for name, c := range map[string]struct {
		seg   framework.Segment
		class error
		want  string
	}{
		"host":      {with(func(s *framework.Segment) { s.Device = framework.Host }), framework.ErrUnsupported, "CUDA device"},
		"hip":       {with(func(s *framework.Segment) { s.Device.Type = "hip" }), framework.ErrUnsupported, "CUDA device"},
		"none":      {shares(), framework.ErrUnsupported, "expected one of [vmm"},
		"dma-buf":   {segment(t, dmaBuf, local), framework.ErrUnsupported, "shares [dma-buf local]"},
		"empty":     {with(func(s *framework.Segment) { s.Bytes = 0 }), framework.ErrInvalid, "at least 1"},
		"wraps":     {with(func(s *framework.Segment) { s.Offset = 1<<64 - 1 }), framework.ErrInvalid, "at most"},
		"no fd":     {shares(framework.Share{Kind: vmm}), framework.ErrInvalid, "a descriptor and no blob"},
		"both":      {shares(framework.Share{Kind: vmm, FD: good.Shares[0].FD, Blob: []byte("x")}), framework.ErrInvalid, "no blob"},
		"fd blob":   {shares(framework.Share{Kind: legacy, FD: good.Shares[0].FD}), framework.ErrInvalid, "a blob and no descriptor"},
		"pipe":      {shares(framework.Share{Kind: vmm, FD: pipe}), framework.ErrInvalid, "exported"},
		"no handle": {shares(framework.Share{Kind: legacy}), framework.ErrInvalid, "of 0 bytes"},
		"huge":      {shares(framework.Share{Kind: legacy, Blob: make([]byte, maxBlob+1)}), framework.ErrInvalid, "1 to 4096"},
		"short fd":  {with(func(s *framework.Segment) { s.Shares = []framework.Share{share(t, hostFD)}; s.Bytes = 1 << 20 }), framework.ErrInvalid, ""},
	} {
		_, err := tr.Register(bound(t), c.seg)
		if framework.Class(err) != c.class || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v: want %v with %q", name, err, c.class, c.want)
		}
	}
}

// A registration holds no descriptor: those of the key are the only ones.
func TestNothingIsHeld(t *testing.T) {
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	tr := transport(t, recorded(t, "h200"))
	seg := segment(t, vmm, hostFD)
	before := count()
	for range 20 {
		r := must[framework.Registration](t)(tr.Register(bound(t), seg))
		r.Key.Close()
	}
	if after := count(); after > before { // fewer: the collector has closed what other tests left
		t.Errorf("%d descriptors after 20 registrations: want at most %d", after, before)
	}
}

func TestEndedContext(t *testing.T) {
	tr := transport(t, recorded(t, "h200"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err1 := tr.Register(ctx, segment(t, vmm))
	_, err2 := tr.Listen(ctx, config(framework.KindPort, 0, 0, 1))
	_, err3 := tr.Connect(ctx, 1, nil)
	_, err4 := tr.Attach(ctx, 1, 0, nil)
	_, err5 := tr.Image(ctx, "x")
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v: want context.Canceled", i, err)
		}
	}
}
