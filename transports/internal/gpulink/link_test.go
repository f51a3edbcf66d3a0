package gpulink

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// attach has rank a reach memory of rank b, and returns the kinds of the mapping's
// shares.
func attach(t testing.TB, tr *Transport, conn framework.ID, k framework.Registration) ([]framework.ShareKind, error) {
	t.Helper()
	a, err := tr.Attach(bound(t), conn, 0, []framework.Parcel{k.Key})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if len(a.Mappings) != 1 || len(a.Steps) != 1 || a.Steps[0].Op != framework.StepMap || a.Steps[0].Mapping != 0 || a.ID != 0 {
		t.Fatalf("%+v: want one mapping and the step that maps it", a)
	}
	m := a.Mappings[0]
	if m.Role != framework.RolePeer || m.Offset != 4096 || m.Bytes != 8192 {
		t.Errorf("%+v: want the peer's 8192 bytes at 4096", m)
	}
	return kindsOf(m.Shares), nil
}

// The shares of a mapping depend on the pair.
func TestChoiceOfShares(t *testing.T) {
	everything := []framework.ShareKind{local, vmm, fabric, legacy}
	for name, c := range map[string]struct {
		machine string
		peers   [2]int
		one     bool // both ranks in one process
		change  func(*Options)
		offered []framework.ShareKind
		want    []framework.ShareKind
		refused string
	}{
		"two processes":      {machine: "h200", peers: [2]int{0, 5}, offered: everything, want: []framework.ShareKind{vmm, fabric, legacy, local}},
		"one process":        {machine: "h200", peers: [2]int{0, 5}, one: true, offered: everything, want: []framework.ShareKind{local, vmm, fabric}},
		"one process, old":   {machine: "h200", peers: [2]int{0, 5}, one: true, offered: []framework.ShareKind{local, legacy}, want: []framework.ShareKind{local}},
		"preferred":          {machine: "h200", peers: [2]int{0, 1}, offered: everything, change: func(c *Options) { c.Shares = []string{"legacy-ipc", "vmm"} }, want: []framework.ShareKind{legacy, vmm, local}},
		"old memory":         {machine: "a100-direct", peers: [2]int{0, 3}, offered: []framework.ShareKind{local, legacy}, want: []framework.ShareKind{legacy, local}},
		"no peer access":     {machine: "a10", peers: [2]int{1, 2}, offered: everything, refused: "NVIDIA A10G at 0000:00:1c.0 cannot address the memory of NVIDIA A10G at 0000:00:1d.0: chipset not supported"},
		"what to set":        {machine: "a10", peers: [2]int{1, 2}, offered: everything, refused: "gpu_memory: host"},
		"through the host":   {machine: "a10", peers: [2]int{1, 2}, offered: []framework.ShareKind{local, hostFD}, want: []framework.ShareKind{hostFD, local}},
		"host, one process":  {machine: "a10", peers: [2]int{1, 2}, one: true, offered: []framework.ShareKind{local, hostFD}, want: []framework.ShareKind{local, hostFD}},
		"host on NVLink":     {machine: "h200", peers: [2]int{0, 1}, offered: []framework.ShareKind{local, hostFD}, want: []framework.ShareKind{hostFD, local}},
		"one process, apart": {machine: "a10", peers: [2]int{0, 1}, one: true, offered: everything, refused: "chipset not supported"},
		"beside a partition": {machine: "mig", peers: [2]int{0, 1}, offered: everything, refused: "GPU not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*Options) {}
			}
			for _, kind := range []framework.Kind{framework.KindMemory, framework.KindPort} {
				ta := transport(t, recorded(t, c.machine), change)
				tb := ta
				if !c.one {
					tb = transport(t, recorded(t, c.machine))
				}
				ab, _ := join(t, kind, ta, tb, c.peers[0], c.peers[1])
				got, err := attach(t, ta, ab, register(t, tb, c.offered...))
				if c.refused != "" {
					if framework.Class(err) != framework.ErrUnavailable || !strings.Contains(fmt.Sprint(err), c.refused) || framework.PeerOf(err) != c.peers[1] ||
						strings.Count(err.Error(), "rank ") != 1 {
						t.Errorf("%v: %v: want ErrUnavailable that names the pair: %q", kind, err, c.refused)
					}
				} else if err != nil || !slices.Equal(got, c.want) {
					t.Errorf("%v: %v, %v: want %v", kind, got, err, c.want)
				}
			}
		})
	}
}

// A peer without the share that is needed is an error that says what there was.
func TestNothingToMap(t *testing.T) {
	ta := transport(t, recorded(t, "h200"), func(c *Options) { c.Shares = []string{"legacy-ipc"} })
	tb := transport(t, recorded(t, "h200"))
	ab, _ := join(t, framework.KindMemory, ta, tb, 0, 1)
	_, err := attach(t, ta, ab, register(t, tb, local, vmm))
	if framework.Class(err) != framework.ErrUnavailable || !strings.Contains(fmt.Sprint(err), "[local vmm]") || !strings.Contains(fmt.Sprint(err), "legacy-ipc") {
		t.Errorf("%v: want ErrUnavailable that lists what there is and what was wanted", err)
	}
}

// The log has the reason for each choice.
func TestReasonInLog(t *testing.T) {
	var out bytes.Buffer
	ta, tb := transport(t, recorded(t, "h200")), transport(t, recorded(t, "h200"))
	ta.log = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})) // as in a plugin
	ab, _ := join(t, framework.KindMemory, ta, tb, 0, 1)
	if _, err := attach(t, ta, ab, register(t, tb, local, vmm)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"path":"NV18"`, "another process of this host, path NV18", `"vmm"`, `"gpu":"NVIDIA H200 at 0000:19:00.0"`, `"kind":"memory"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	ta, tb = transport(t, recorded(t, "a10")), transport(t, recorded(t, "a10"))
	ta.log = slog.New(slog.NewTextHandler(&out, nil))
	join(t, framework.KindMemory, ta, tb, 0, 1)
	if !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "chipset not supported") {
		t.Errorf("no warning about a pair without access:\n%s", out.String())
	}
	out.Reset() // a rank whose memory is of the host needs no access
	a, b := config(framework.KindMemory, 0, 0, 1), config(framework.KindMemory, 1, 0, 1)
	a.Facts.Other = map[string]string{topo.FactMemory: "host"}
	ea, eb := listen(t, ta, a), listen(t, tb, b)
	must[framework.ID](t)(ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}}))
	if out.Len() > 0 {
		t.Errorf("with memory of the host: %s", out.String())
	}
}

func TestRequireLinks(t *testing.T) {
	strict := func(c *Options) { c.RequireLinks = true }
	for machine, refused := range map[string]bool{"h200": false, "a100-direct": false, "a10": true} {
		ta, tb := transport(t, recorded(t, machine), strict), transport(t, recorded(t, machine))
		ea, eb := listen(t, ta, config(framework.KindPort, 0, 0, 1)), listen(t, tb, config(framework.KindPort, 1, 0, 1))
		_, err := ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}})
		if refused != (err != nil) {
			t.Errorf("%s: %v: want refused %v", machine, err, refused)
		}
		if refused && (framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "0000:00:1b.0") || framework.PeerOf(err) != 1) {
			t.Errorf("%s: %v: want ErrUnavailable that names the pair", machine, err)
		}
	}
}

// Two ranks on one GPU need neither links nor peer access, two parts of one GPU
// have none.
func TestOneGPU(t *testing.T) {
	ta, tb := transport(t, recorded(t, "a10"), func(c *Options) { c.RequireLinks = true }), transport(t, recorded(t, "a10"))
	a, b := config(framework.KindMemory, 0, 0, 1), config(framework.KindMemory, 1, 0, 1)
	b.Device = cuda(0)
	ea, eb := listen(t, ta, a), listen(t, tb, b)
	conn, err := ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := attach(t, ta, conn, register(t, tb, vmm)); err != nil || !slices.Equal(got, []framework.ShareKind{vmm}) {
		t.Errorf("%v, %v", got, err)
	}

	parts := must[[]topo.GPU](t)(recorded(t, "mig")(bound(t)))[0].MIG.Parts
	ta, tb = transport(t, recorded(t, "mig")), transport(t, recorded(t, "mig"))
	b.Device = cuda(0)
	a.Facts.Other = map[string]string{topo.FactUUID: parts[0].UUID}
	b.Facts.Other = map[string]string{topo.FactUUID: parts[1].UUID}
	ea, eb = listen(t, ta, a), listen(t, tb, b)
	conn = must[framework.ID](t)(ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}}))
	if _, err := attach(t, ta, conn, register(t, tb, vmm)); framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "parts of a partitioned GPU") {
		t.Errorf("%v: want ErrUnavailable that speaks of parts", err)
	}
}

// A rank's own word about its GPU counts more than its number, which the
// environment changes.
func TestWhichGPU(t *testing.T) {
	tr := transport(t, recorded(t, "h200"))
	where := func(c framework.EndpointConfig) string {
		t.Helper()
		return must[address](t)(decodeAddress(head, listen(t, tr, c).Address.Data)).gpu.pci
	}
	c := config(framework.KindMemory, 0, 0, 1)
	if got := where(c); got != "0000:19:00.0" {
		t.Errorf("cuda:0 is %s", got)
	}
	tr.machine.lookup = func(string) (string, bool) { return "7,3", true }
	if got := where(c); got != "0000:db:00.0" {
		t.Errorf("with CUDA_VISIBLE_DEVICES=7,3 cuda:0 is %s", got)
	}
	c.Facts.Other = map[string]string{topo.FactPCI: "0000:3B:00.0"}
	if got := where(c); got != "0000:3b:00.0" {
		t.Errorf("the rank says 0000:3b:00.0, and it is %s", got)
	}
	c.Facts.Other = map[string]string{topo.FactPCI: "0000:ff:00.0"}
	if _, err := tr.Listen(bound(t), c); framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "0000:ff:00.0") {
		t.Errorf("a GPU that is not there: %v", err)
	}
	c.Facts.Other, c.Device = nil, cuda(2)
	if _, err := tr.Listen(bound(t), c); framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "CUDA_VISIBLE_DEVICES") {
		t.Errorf("cuda:2 of two: %v", err)
	}
}

// Where a container shows each rank its own GPU alone, the pair is tried: the rank
// that maps learns whether it works.
func TestPeerThatIsNotVisible(t *testing.T) {
	all := must[[]topo.GPU](t)(recorded(t, "h200")(bound(t)))
	alone := func(i int) Finder {
		return func(context.Context) ([]topo.GPU, error) {
			g := all[i]
			g.Access = nil
			return []topo.GPU{g}, nil
		}
	}
	ta, tb := transport(t, alone(0)), transport(t, alone(1))
	a, b := config(framework.KindMemory, 0, 0, 1), config(framework.KindMemory, 1, 0, 1)
	b.Device = cuda(0)
	ea, eb := listen(t, ta, a), listen(t, tb, b)
	conn := must[framework.ID](t)(ta.Connect(bound(t), ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}}))
	if got, err := attach(t, ta, conn, register(t, tb, local, vmm)); err != nil || got[0] != vmm {
		t.Errorf("%v, %v: want the pair to be tried", got, err)
	}
}

// Hosts of one NVLink network reach each other by fabric handles alone, if the
// options say so.
func TestFabric(t *testing.T) {
	rack := func(clique uint32) Finder {
		return func(ctx context.Context) ([]topo.GPU, error) {
			gpus, err := recorded(t, "h200")(ctx)
			for i := range gpus {
				gpus[i].Fabric = &topo.Fabric{State: "completed", Cluster: "ab01", Clique: clique}
			}
			return gpus, err
		}
	}
	on := func(c *Options) { c.Fabric = true }
	on1, on2, off, other := transport(t, rack(4), on), transport(t, rack(4), on), transport(t, rack(4)), transport(t, rack(5), on)
	end := func(tr *Transport, n int) framework.Endpoint {
		c := config(framework.KindMemory, n, 0, 1)
		c.Facts.Host = fmt.Sprintf("tray-%d", n)
		return listen(t, tr, c)
	}
	a, b := end(on1, 0), end(on2, 1)
	if want := []string{"host:tray-0", "nvlink:ab01/4"}; !slices.Equal(a.Reach, want) {
		t.Errorf("reach %v: want %v", a.Reach, want)
	}
	conn := must[framework.ID](t)(on1.Connect(bound(t), a.ID, []framework.Peer{{Rank: 1, Address: b.Address}}))
	registered := func(kinds ...framework.ShareKind) framework.Registration {
		r := register(t, on2, kinds...)
		r.Key.Shares = slices.DeleteFunc(r.Key.Shares, func(s framework.Share) bool { return s.FD != nil }) // descriptors do not travel
		return r
	}
	if got, err := attach(t, on1, conn, registered(local, vmm, fabric, legacy)); err != nil || !slices.Equal(got, []framework.ShareKind{fabric}) {
		t.Errorf("%v, %v: want fabric alone", got, err)
	}
	if _, err := attach(t, on1, conn, registered(local, vmm, legacy)); framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "gpu_memory: fabric") {
		t.Errorf("%v: want ErrUnavailable, and the setting that makes such memory", err)
	}
	for name, tr := range map[string]*Transport{"option off": off, "another clique": other} {
		c := end(tr, 1)
		if shareToken(a.Reach, c.Reach) {
			t.Errorf("%s: %v and %v share a token", name, a.Reach, c.Reach)
		}
		if _, err := on1.Connect(bound(t), a.ID, []framework.Peer{{Rank: 1, Address: c.Address}}); framework.Class(err) != framework.ErrPeer {
			t.Errorf("%s: %v: want ErrPeer", name, err)
		}
	}
}

func shareToken(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
}
