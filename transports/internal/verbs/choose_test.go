package verbs

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/transports/internal/ids"
)

// The error says what is wrong with a machine, and what to do about it.
func TestNoDevice(t *testing.T) {
	for what, x := range map[string]struct {
		macros []string
		change func(*Config)
		mode   Mode
		words  []string
	}{
		"none":            {[]string{"DEVICES=0"}, nil, Atomic, []string{"no RDMA device", "driver"}},
		"not that one":    {nil, func(c *Config) { c.Devices = []string{"mlx5_7"} }, Atomic, []string{`"mlx5_7"`, "fake0 fake1"}},
		"not openable":    {[]string{"OPEN_ERRNO=13"}, nil, Atomic, []string{"fake0", "permission denied", "/dev/infiniband/uverbs", "owner and mode"}},
		"kept from it":    {[]string{"OPEN_ERRNO=1"}, nil, Immediate, []string{"fake0", "operation not permitted", "/dev/infiniband/uverbs", "container"}},
		"port down":       {[]string{"PORT_STATE=1"}, nil, Atomic, []string{"fake0 port 2 is down", "ip link"}},
		"no such port":    {nil, func(c *Config) { c.Port = 3 }, Atomic, []string{"no port 3", "1 to 2"}},
		"that port down":  {nil, func(c *Config) { c.Port = 1 }, Atomic, []string{"port 1 is down"}},
		"no atomics":      {[]string{"ATOMIC_CAP=0"}, nil, Atomic, []string{"no remote atomics", "ib-nonatomic"}},
		"no address":      {[]string{"GID_KIND=1"}, nil, Atomic, []string{"no usable address", "RoCE v2", "IP address"}},
		"an empty index":  {nil, func(c *Config) { c.GIDIndex = 0 }, Immediate, []string{"gid_index 0"}},
		"beyond the end":  {nil, func(c *Config) { c.GIDIndex = 9 }, Immediate, []string{"gid_index 9"}},
		"of no family":    {[]string{"GID_KIND=1"}, func(c *Config) { c.GIDFamily = "inet6" }, Atomic, []string{"no usable address", "gid_family inet6"}},
		"no such library": {nil, func(c *Config) { c.Library = "/nowhere/libibverbs.so" }, Atomic, []string{"/nowhere/libibverbs.so", "install libibverbs1"}},
		"another library": {nil, func(c *Config) { c.Library = "libm.so.6" }, Atomic, []string{"has no ibv_get_device_list"}},
	} {
		t.Run(what, func(t *testing.T) {
			tr := transportOn(t, fake(t, x.macros...), x.mode, func(c *Config) {
				if x.change != nil {
					x.change(c)
				}
			})
			_, err := tr.Listen(t.Context(), linkConfig(0))
			wantError(t, err, framework.ErrUnavailable, x.words...)
			live, err := tr.Probe(t.Context(), framework.Facts{})
			if err != nil || live.Available || !strings.Contains(live.Reason, x.words[0]) {
				t.Errorf("probe: %+v, %v; want the same reason", live, err)
			}
		})
	}
}

func linkConfig(rank int) framework.EndpointConfig {
	return framework.EndpointConfig{Kind: framework.KindPort, Rank: rank, Ranks: []int{0, 1}, Group: "test", Device: framework.Host}
}

// Without a device the suite still finds all claims in order, and leaves the rest.
func TestConformanceWithoutDevice(t *testing.T) {
	library := fake(t, "DEVICES=0")
	report, err := transporttest.Suite(t.Context(), transporttest.Options{Open: func(context.Context) (*transporttest.Side, error) {
		return transporttest.Embedded(transportOn(t, library, Atomic)), nil
	}})
	if err != nil || report.Failed() != 0 || report.Left == 0 || !strings.Contains(report.Reason, "no RDMA device") {
		t.Errorf("%v, %d failed, %d left because of %q: %+v", err, report.Failed(), report.Left, report.Reason, report.Results)
	}
}

// Atomics are not asked of a device that only carries immediates.
func TestImmediatesNeedNoAtomics(t *testing.T) {
	live, err := transportOn(t, fake(t, "ATOMIC_CAP=0"), Immediate).Probe(t.Context(), framework.Facts{})
	if err != nil || !live.Available || live.Facts["atomics"] != "none" {
		t.Errorf("probe: %+v, %v", live, err)
	}
}

// Port and address are found by looking: the first port is down, the first address is
// missing, the second is of RoCE v1, the third is link local.
func TestPortAndAddressAreFound(t *testing.T) {
	tr := transportOn(t, fake(t), Atomic)
	live, err := tr.Probe(t.Context(), framework.Facts{NICs: []framework.NIC{{Name: "fake1"}, {Name: "fake0"}}})
	if err != nil || !live.Available {
		t.Fatalf("%+v, %v", live, err)
	}
	want := map[string]string{"device": "fake1", "port": "2", "gid": "00000000000000000000ffffc0000201 at 3", "mtu": "4096", "atomics": "adapter", "fabric": "roce:v2"}
	for k, v := range want {
		if live.Facts[k] != v {
			t.Errorf("%s is %q, expected %q", k, live.Facts[k], v)
		}
	}
}

// The address is of the family and the network that the user prefers, unless an index says which one, or none is: then it is as
// without a preference, and a warning says so.
func TestAddressOfFamilyAndNetwork(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	for at, change := range map[string]func(*Config){
		" at 2":  func(c *Config) { c.GIDFamily = "inet6" },
		" at 3":  func(c *Config) { c.GIDFamily, c.GIDRange = "inet", "192.0.2.0/24" },
		"1 at 2": func(c *Config) { c.GIDRange = "fe80::/10" },
		"2 at 2": func(c *Config) { c.GIDIndex, c.GIDFamily, c.GIDRange = 2, "inet", "10.0.0.0/8" },
		"1 at 3": func(c *Config) { c.GIDRange = "10.0.0.0/8" },
	} {
		log.Reset()
		live, err := transportOn(t, fake(t), Atomic, change).Probe(t.Context(), framework.Facts{})
		if want := at[strings.Index(at, " "):]; err != nil || !strings.HasSuffix(live.Facts["gid"], want) {
			t.Errorf("%+v, %v: expected the address%s", live, err, want)
		}
		if said := log.String(); strings.Contains(said, "gid_range 10.0.0.0/8: another one is used") != (at == "1 at 3") {
			t.Errorf("address%s: log %q", at, said)
		}
	}
}

func TestCandidates(t *testing.T) {
	netdev := func(n string) string { return map[string]string{"eth1": "b"}[n] }
	nics := []framework.NIC{{Name: "c"}, {Name: "b"}}
	close := []framework.NIC{{Name: "c", Distance: "PIX"}, {Name: "b", Distance: "PIX"}, {Name: "a", Distance: "SYS"}}
	for _, x := range []struct {
		allowed []string
		nics    []framework.NIC
		want    []string
	}{
		{nil, nil, []string{"a", "b", "c"}},
		{nil, nics, []string{"c", "b", "a"}},
		{[]string{"a", "eth1"}, nil, []string{"a", "b"}},
		{[]string{"a", "eth1"}, nics, []string{"b", "a"}},
		{nil, close, []string{"c", "b", "a"}},                     // in the rank's turn
		{[]string{"eth1", "c"}, close, []string{"b", "c"}},        // as named, in any rank's turn
		{[]string{"a", "c", "b"}, close, []string{"c", "b", "a"}}, // but nearest first
		{[]string{"a", "eth1"}, close, []string{"b", "a"}},
		{[]string{"a"}, close, []string{"a"}},
	} {
		got, err := candidates([]string{"a", "b", "c"}, x.allowed, x.nics, netdev)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("allowed %v, near %v: %v, %v; expected %v", x.allowed, x.nics, got, err, x.want)
		}
	}
}

// Four ranks of a host, each with the adapters of its turn, keep both busy; where devices are
// named, the first named one. Memory that is registered in between, without facts about
// adapters, is registered with the same.
func TestRanksUseAllDevices(t *testing.T) {
	for what, x := range map[string]struct {
		named []string
		want  []string
	}{"all": {nil, []string{"fake0", "fake1", "fake0", "fake1"}}, "named": {[]string{"fake1", "fake0"}, []string{"fake1", "fake1", "fake1", "fake1"}}} {
		for rank, want := range x.want {
			tr := transportOn(t, fake(t), Atomic, func(c *Config) { c.Devices = x.named })
			nics := []framework.NIC{{Name: "fake0", Distance: "NODE"}, {Name: "fake1", Distance: "NODE"}}
			if rank%2 == 1 {
				slices.Reverse(nics)
			}
			live, err := tr.Probe(t.Context(), framework.Facts{NICs: nics})
			if err != nil || live.Facts["device"] != want || live.Facts["distance"] != "NODE" {
				t.Errorf("%s: rank %d: %+v, %v: expected %s", what, rank, live, err, want)
			}
			m, err := memfd.New("test", 4096, memfd.Options{})
			if err != nil {
				t.Fatal(err)
			}
			reg, err := tr.Register(t.Context(), segment(m))
			if err != nil || tr.dev.name != want {
				t.Errorf("%s: rank %d: memory registered with %+v, %v: expected %s", what, rank, tr.dev, err, want)
			}
			_ = tr.Close(t.Context(), reg.ID)
			m.Close()
		}
	}
}

// The smaller MTU of both sides is used, and the configured value reaches the queue pair.
func TestPathOptions(t *testing.T) {
	lines := recorded(t)
	a := transportOn(t, fake(t), Atomic, func(c *Config) { c.Devices, c.TrafficClass, c.AckTimeout, c.Retries = []string{"fake0"}, 106, 12, 3 })
	b := transportOn(t, fake(t), Atomic, func(c *Config) { c.Devices = []string{"fake1"} })
	connected(t, a, b)
	for _, want := range []string{"rtr mtu=3 global=1 gid_index=3 class=106 port=2", "rts timeout=12 retries=3 rnr=6", "rtr mtu=3 global=1 gid_index=3 class=0 port=2", "rts timeout=16 retries=6 rnr=6"} {
		if !slices.Contains(lines(), want) {
			t.Errorf("no %q among %q", want, lines())
		}
	}
}

// InfiniBand and RoCE do not meet.
func TestNetworksDoNotMeet(t *testing.T) {
	a, b := transportOn(t, fake(t), Atomic), transportOn(t, fake(t, "LINK_LAYER=1"), Atomic)
	ea, err := a.Listen(t.Context(), linkConfig(0))
	if err != nil {
		t.Fatal(err)
	}
	eb, err := b.Listen(t.Context(), linkConfig(1))
	if err != nil {
		t.Fatal(err)
	}
	if ea.Reach[0] != "roce:v2" || eb.Reach[0] != "ib:fe80000000000000" {
		t.Errorf("reach %v and %v", ea.Reach, eb.Reach)
	}
	_, err = a.Connect(t.Context(), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}})
	wantError(t, err, framework.ErrPeer, "rank 1", "InfiniBand", "RoCE")
	c := transportOn(t, fake(t), Atomic, func(c *Config) { c.Fabric = "rail-1" })
	ec, err := c.Listen(t.Context(), linkConfig(0))
	if err != nil || ec.Reach[0] != "fabric:rail-1" {
		t.Errorf("reach %v, %v", ec.Reach, err)
	}
}

// Both ways to signal do not meet either.
func TestModesDoNotMeet(t *testing.T) {
	a, b := transportOn(t, fake(t), Atomic), transportOn(t, fake(t), Immediate)
	ea, err := a.Listen(t.Context(), linkConfig(0))
	if err != nil {
		t.Fatal(err)
	}
	eb, err := b.Listen(t.Context(), linkConfig(1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Connect(t.Context(), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}})
	wantError(t, err, framework.ErrPeer, "ib-nonatomic")
}

func segment(m *memfd.Memory) framework.Segment {
	return framework.Segment{Device: framework.Host, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: m.File()}}, Bytes: m.Len()}
}

// Memory of a device goes by its dma-buf; a library that cannot returns an error, and so does
// a rank that has none.
func TestDMABuf(t *testing.T) {
	m, err := memfd.New("test", 4096, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tr := transportOn(t, fake(t), Atomic)
	gpu := framework.Device{Type: "cuda"}
	_, err = tr.Register(t.Context(), framework.Segment{Device: gpu, Bytes: 4096, Shares: []framework.Share{{Kind: framework.ShareDMABuf, FD: m.File()}}})
	wantError(t, err, framework.ErrUnsupported, "dma-buf", "rdma-core 34")
	_, err = tr.Register(t.Context(), framework.Segment{Device: gpu, Bytes: 4096, Shares: []framework.Share{{Kind: framework.ShareVMM, FD: m.File()}}})
	wantError(t, err, framework.ErrUnsupported, "dma-buf", "staged")
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			asked := recorded(t)
			seg := framework.Segment{Device: gpu, Bytes: 2048, Offset: 1024, Shares: []framework.Share{{Kind: framework.ShareVMM}, {Kind: framework.ShareDMABuf, FD: m.File()}}}
			tr := transportOn(t, fake(t, "DMABUF"), mode)
			reg, err := tr.Register(t.Context(), seg)
			if err != nil {
				t.Fatal(err)
			}
			// Relaxed ordering (0x100000) would let a signal overtake data.
			want := "register dma-buf access=0x7"
			if mode == Atomic {
				want = "register dma-buf access=0xf"
			}
			if got := asked(); !slices.Contains(got, want) {
				t.Errorf("%q: expected %q", got, want)
			}
			if err := tr.Close(t.Context(), reg.ID); err != nil {
				t.Error(err)
			}
			off := transportOn(t, fake(t, "DMABUF"), mode, func(c *Config) { c.GPUDirect = false })
			_, err = off.Register(t.Context(), seg)
			wantError(t, err, framework.ErrUnsupported, "gpu_direct", "memory of the host")
			for tr, want := range map[*Transport]bool{tr: true, off: false} {
				if d, err := tr.Describe(t.Context()); err != nil || slices.Contains(d.Needs, framework.NeedDMABuf) != want {
					t.Errorf("needs %v, %v: expected a dma-buf among them: %v", d.Needs, err, want)
				}
			}
		})
	}
}

// Memory with nothing but an address is registered there, where the address is one of this
// process; memory of a device, or with a descriptor that is of no use, is not.
func TestAddress(t *testing.T) {
	own := make([]uint64, 512)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(own))))
	seg := framework.Segment{Device: framework.Host, Bytes: 4096, Addr: at}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			clear(own)
			asked := recorded(t)
			tr := transportOn(t, fake(t), mode)
			reg, err := tr.Register(t.Context(), seg)
			if err != nil {
				t.Fatal(err)
			}
			want := "register access=0x7"
			if mode == Atomic {
				want = "register access=0xf"
			}
			if got := asked(); !slices.Contains(got, want) {
				t.Errorf("%q: expected %q", got, want)
			}
			if k, err := openKey(reg.Key, mode); err != nil || k.addr != at || k.bytes != 4096 {
				t.Errorf("key %+v, %v: expected 4096 bytes at %#x", k, err, at)
			}
			r, err := ids.Find[*registration](&tr.objects, reg.ID, "registration")
			if err != nil {
				t.Fatal(err)
			}
			if !r.raise(64, 3) || own[8] != 3 {
				t.Errorf("the counter is %d: expected 3", own[8])
			}
			if r.raise(4096-7, 1) || r.raise(4, 1) {
				t.Error("a counter outside of the memory, or not aligned, was raised")
			}
			if err := tr.Close(t.Context(), reg.ID); err != nil {
				t.Error(err)
			}
			if r.raise(64, 1) || own[8] != 3 {
				t.Errorf("memory whose registration was closed was raised to %d", own[8])
			}
		})
	}
	tr := transportOn(t, fake(t), Atomic)
	refused := func(change func(s *framework.Segment), class error, words ...string) {
		t.Helper()
		s := seg
		change(&s)
		_, err := tr.Register(t.Context(), s)
		wantError(t, err, class, words...)
	}
	refused(func(s *framework.Segment) { s.Addr = 0 }, framework.ErrUnsupported, "memory from Alloc", "by its address")
	refused(func(s *framework.Segment) { s.Device = framework.Device{Type: "cuda"} }, framework.ErrUnsupported, "dma-buf", "staged")
	refused(func(s *framework.Segment) { s.Shares = []framework.Share{{Kind: framework.ShareVMM}} }, framework.ErrUnsupported, "memory from Alloc")
	refused(func(s *framework.Segment) { s.Addr = math.MaxUint64 - 7 }, framework.ErrInvalid, "4096 bytes at address")
	_, err := transportOn(t, fake(t, "REGISTER_ERRNO=14"), Atomic).Register(t.Context(), seg)
	wantError(t, err, framework.ErrInvalid, "4096 bytes at address", "may write")
}

func TestConfig(t *testing.T) {
	if err := (Config{}.Defaults()).Validate(); err != nil {
		t.Fatal(err)
	}
	for word, change := range map[string]func(*Config){
		"port": func(c *Config) { c.Port = -1 }, "gid_index": func(c *Config) { c.GIDIndex = 256 }, "mtu": func(c *Config) { c.MTU = 1500 },
		"gid_family": func(c *Config) { c.GIDFamily = "AF_INET" }, "gid_range": func(c *Config) { c.GIDRange = "10.0.0.1" },
		"traffic_class": func(c *Config) { c.TrafficClass = 256 }, "service_level": func(c *Config) { c.ServiceLevel = 16 },
		"ack_timeout": func(c *Config) { c.AckTimeout = 0 }, "retries": func(c *Config) { c.Retries = 7 },
		"queue_depth": func(c *Config) { c.QueueDepth = 8 }, "receives": func(c *Config) { c.Receives = 0 },
		"inline": func(c *Config) { c.Inline = -1 }, "drain_cpu": func(c *Config) { c.DrainCPU = 5000 }, "drain_spin": func(c *Config) { c.DrainSpin = -1 },
	} {
		c := Config{}.Defaults()
		change(&c)
		_, err := New(Setup{Name: "ib-host", Mode: Atomic}, c)
		wantError(t, err, framework.ErrInvalid, word, "expected")
	}
}
