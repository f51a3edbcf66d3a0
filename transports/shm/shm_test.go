package shm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/transports/internal/link"
)

// side is one rank: a transport and a device of its own.
type side struct {
	t    testing.TB
	rank int
	tr   *Transport
	dev  *host.Device
}

func ranks(t testing.TB, n int) []*side {
	t.Helper()
	var all []*side
	for r := range n {
		tr, err := newTransport(Config{}.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		dev, err := host.Open()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &side{t: t, rank: r, tr: tr, dev: dev})
	}
	return all
}

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

func (s *side) alloc(bytes uint64) device.Memory {
	s.t.Helper()
	m := must[device.Memory](s.t)(s.dev.Alloc(bytes))
	s.t.Cleanup(func() { m.Close() })
	return m
}

func (s *side) register(m device.Memory, offset, bytes uint64) framework.Registration {
	s.t.Helper()
	shares := must[[]framework.Share](s.t)(m.Export())
	defer framework.Parcel{Shares: shares}.Close()
	r := must[framework.Registration](s.t)(s.tr.Register(bound(s.t), framework.Segment{Device: framework.Host, Shares: shares, Offset: offset, Bytes: bytes}))
	s.t.Cleanup(func() { r.Key.Close(); s.tr.Close(context.Background(), r.ID) })
	return r
}

func config(kind framework.Kind, rank int, members ...int) framework.EndpointConfig {
	c := framework.EndpointConfig{Kind: kind, Rank: rank, Ranks: members, Group: "test", Device: framework.Host}
	if kind == framework.KindSwitch {
		c.Bytes = window
	}
	return c
}

const window = 8192

func (s *side) listen(c framework.EndpointConfig) framework.Endpoint {
	s.t.Helper()
	e := must[framework.Endpoint](s.t)(s.tr.Listen(bound(s.t), c))
	s.t.Cleanup(func() { e.Address.Close(); s.tr.Close(context.Background(), e.ID) })
	return e
}

// pair connects two ranks.
func pair(t testing.TB, kind framework.Kind) (a, b *side, ab, ba framework.ID) {
	t.Helper()
	all := ranks(t, 2)
	a, b = all[0], all[1]
	ea, eb := a.listen(config(kind, 0, 0, 1)), b.listen(config(kind, 1, 0, 1))
	ab = must[framework.ID](t)(a.tr.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}}))
	ba = must[framework.ID](t)(b.tr.Connect(bound(t), eb.ID, []framework.Peer{{Rank: 0, Address: ea.Address}}))
	return a, b, ab, ba
}

// usage counts what a leak would leave: descriptors of memfds and mappings.
func usage(t testing.TB) (n [2]int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(link, "memfd:") {
			n[0]++
		}
	}
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n[1] = strings.Count(string(text), "memfd:")
	return n
}

// leakFree runs the body as a subtest, whose clean-up closes everything it made.
func leakFree(t *testing.T, name string, body func(t *testing.T)) {
	t.Helper()
	before := usage(t)
	t.Run(name, body)
	if after := usage(t); after != before {
		t.Errorf("%s: %v memfds and mappings are left: expected %v", name, after, before)
	}
}

func TestMemoryChannel(t *testing.T) {
	leakFree(t, "put", func(t *testing.T) {
		a, b, ab, _ := pair(t, framework.KindMemory)
		theirs := b.alloc(10000)
		key := b.register(theirs, 5000, 3000)
		recipe := must[framework.Attachment](t)(a.tr.Attach(bound(t), ab, 0, []framework.Parcel{key.Key}))
		if len(recipe.Steps) != 1 || recipe.Steps[0].Op != framework.StepMap || recipe.Mappings[0].Peer != 1 {
			t.Fatalf("%+v", recipe)
		}
		shares := recipe.Mappings[0].Shares
		if len(shares) != 2 || shares[0].Kind != framework.ShareLocal || shares[1].Kind != framework.ShareMemFD {
			t.Fatalf("%+v: expected a local share, then the memfd", shares)
		}
		for _, s := range [][]framework.Share{shares, shares[1:]} { // within the process, and as another one would
			m := recipe.Mappings[0]
			m.Shares = s
			w := must[device.Memory](t)(a.dev.Map(m))
			if w.Bytes() != 3000 {
				t.Fatalf("%d bytes: expected 3000", w.Bytes())
			}
			copy(device.Bytes(w)[2995:], "hello")
			if got := string(device.Bytes(theirs)[7995:8000]); got != "hello" {
				t.Errorf("rank 1 sees %q", got)
			}
			device.Bytes(theirs)[7995] = 0
			w.Close()
		}
		recipe.Close()
	})
}

func TestDescribe(t *testing.T) {
	tr := ranks(t, 1)[0].tr
	d := must[framework.Description](t)(tr.Describe(bound(t)))
	if d.Name != "shm" || d.Proxy != framework.ProxyPlugin || d.Probe || d.Signal != framework.SignalDirect || len(d.Channels) != 3 {
		t.Errorf("%+v", d)
	}
}

func TestReach(t *testing.T) {
	s := ranks(t, 1)[0]
	e := s.listen(config(framework.KindMemory, 0, 0, 1))
	if len(e.Reach) != 1 || e.Reach[0] != "host:"+link.BootID() || link.BootID() == "" {
		t.Errorf("%v", e.Reach)
	}
	c := config(framework.KindMemory, 0, 0, 1)
	c.Facts.Host = "blade-7"
	if e := s.listen(c); e.Reach[0] != "host:blade-7" {
		t.Errorf("%v: expected the configured name", e.Reach)
	}
	c.Facts.Host = strings.Repeat("x", 300)
	if _, err := s.tr.Listen(bound(t), c); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("a name of 300 bytes: %v", err)
	}
}

func TestConnectRefuses(t *testing.T) {
	all := ranks(t, 2)
	a, b := all[0], all[1]
	end := a.listen(config(framework.KindMemory, 0, 0, 1))
	other := func(change func(*framework.EndpointConfig)) framework.Parcel {
		c := config(framework.KindMemory, 1, 0, 1)
		change(&c)
		return b.listen(c).Address
	}
	good := other(func(*framework.EndpointConfig) {})
	future := framework.Parcel{Data: append([]byte{}, good.Data...)}
	future.Data[4] = 9
	for _, c := range []struct {
		name    string
		address framework.Parcel
		want    string
	}{
		{"host", other(func(c *framework.EndpointConfig) { c.Facts.Host = "elsewhere" }), `host "elsewhere"`},
		{"kind", other(func(c *framework.EndpointConfig) { c.Kind = framework.KindPort }), "port link: expected memory"},
		{"group", other(func(c *framework.EndpointConfig) { c.Group = "other" }), "another group"},
		{"ranks", other(func(c *framework.EndpointConfig) { c.Ranks = []int{1, 2} }), "other ranks"},
		{"own address", end.Address, "address of rank 0"},
		{"version", future, "version 9: expected 1; the ranks run different builds"},
		{"nothing", framework.Parcel{}, "no address of shm"},
		{"a share too many", framework.Parcel{Data: good.Data, Shares: []framework.Share{{Kind: framework.ShareLocal}}}, "1 shares: expected 0"},
	} {
		_, err := a.tr.Connect(bound(t), end.ID, []framework.Peer{{Rank: 1, Address: c.address}})
		if framework.Class(err) != framework.ErrPeer || !strings.Contains(err.Error(), c.want) || framework.PeerOf(err) != 1 {
			t.Errorf("%s: %v: expected ErrPeer that names rank 1, with %q", c.name, err, c.want)
		}
	}
	if _, err := a.tr.Connect(bound(t), end.ID, []framework.Peer{{Rank: 1, Address: good}}); err != nil {
		t.Errorf("the good address: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	s := ranks(t, 1)[0]
	for name, c := range map[string]struct {
		change func(*framework.EndpointConfig)
		class  error
	}{
		"kind":         {func(c *framework.EndpointConfig) { c.Kind = 9 }, framework.ErrUnsupported},
		"device":       {func(c *framework.EndpointConfig) { c.Device = framework.Device{Type: "cuda"} }, framework.ErrUnsupported},
		"not a member": {func(c *framework.EndpointConfig) { c.Rank = 5 }, framework.ErrInvalid},
		"descending":   {func(c *framework.EndpointConfig) { c.Ranks = []int{1, 0} }, framework.ErrInvalid},
		"twice":        {func(c *framework.EndpointConfig) { c.Ranks = []int{0, 0} }, framework.ErrInvalid},
		"three":        {func(c *framework.EndpointConfig) { c.Ranks = []int{0, 1, 2} }, framework.ErrInvalid},
		"negative":     {func(c *framework.EndpointConfig) { c.Rank, c.Ranks = -1, []int{-1, 0} }, framework.ErrInvalid},
		"empty window": {func(c *framework.EndpointConfig) { c.Kind = framework.KindSwitch }, framework.ErrInvalid},
		"empty switch": {func(c *framework.EndpointConfig) { c.Kind, c.Ranks, c.Bytes = framework.KindSwitch, nil, 1 }, framework.ErrInvalid},
	} {
		cfg := config(framework.KindMemory, 0, 0, 1)
		c.change(&cfg)
		if _, err := s.tr.Listen(bound(t), cfg); framework.Class(err) != c.class || !strings.HasPrefix(err.Error(), "shm listen: ") {
			t.Errorf("%s: %v: expected %v", name, err, c.class)
		}
	}
}

func TestRegisterRefuses(t *testing.T) {
	s := ranks(t, 1)[0]
	shares := must[[]framework.Share](t)(s.alloc(4096).Export())
	defer framework.Parcel{Shares: shares}.Close()
	for name, c := range map[string]struct {
		seg   framework.Segment
		class error
	}{
		"heap":         {framework.Segment{Device: framework.Host, Bytes: 1}, framework.ErrUnsupported},
		"local only":   {framework.Segment{Device: framework.Host, Shares: shares[:1], Bytes: 1}, framework.ErrUnsupported},
		"other device": {framework.Segment{Device: framework.Device{Type: "cuda"}, Shares: shares, Bytes: 1}, framework.ErrUnsupported},
		"too long":     {framework.Segment{Device: framework.Host, Shares: shares, Offset: 1, Bytes: 4096}, framework.ErrInvalid},
		"empty":        {framework.Segment{Device: framework.Host, Shares: shares}, framework.ErrInvalid},
		"no fd":        {framework.Segment{Device: framework.Host, Shares: []framework.Share{{Kind: framework.ShareMemFD}}, Bytes: 1}, framework.ErrInvalid},
	} {
		if _, err := s.tr.Register(bound(t), c.seg); framework.Class(err) != c.class {
			t.Errorf("%s: %v: expected %v", name, err, c.class)
		}
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"spin":  {DrainSpin: -1, DrainCPU: -1},
		"yield": {DrainYield: time.Hour, DrainCPU: -1},
		"cpu":   {DrainCPU: 5000},
	} {
		if _, err := New(c); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "drain_"+name) {
			t.Errorf("%s: %v: expected ErrInvalid that names the option", name, err)
		}
	}
}

func TestEndedContext(t *testing.T) {
	s := ranks(t, 1)[0]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err1 := s.tr.Register(ctx, framework.Segment{})
	_, err2 := s.tr.Listen(ctx, config(framework.KindPort, 0, 0, 1))
	_, err3 := s.tr.Connect(ctx, 1, nil)
	_, err4 := s.tr.Attach(ctx, 1, 0, nil)
	_, err5 := s.tr.NewProxy(ctx)
	_, err6 := s.tr.Image(ctx, "x")
	for i, err := range []error{err1, err2, err3, err4, err5, err6} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v: expected context.Canceled", i, err)
		}
	}
}
