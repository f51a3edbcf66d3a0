package xgmi_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/kfd"
	"github.com/mscclpp-go/mscclpp/transports/xgmi"
)

// recorded finds the GPUs of a recorded machine.
func recorded(t *testing.T, machine string) []topo.GPU {
	t.Helper()
	text, err := os.ReadFile("../../framework/topo/kfd/testdata/" + machine + ".machine")
	if os.IsNotExist(err) {
		t.Skipf("needs the source tree: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := kfd.GPUs(topo.Replay(string(text)))()
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

// on returns a transport on a machine.
func on(t *testing.T, gpus []topo.GPU, c xgmi.Config) framework.Transport {
	t.Helper()
	tr, err := xgmi.NewWith(c, func(context.Context) ([]topo.GPU, error) { return gpus, nil })
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// link connects rank a on GPU a of one process with rank b on GPU b of another.
func link(t *testing.T, ta, tb framework.Transport, a, b int) (framework.ID, error) {
	t.Helper()
	var ends []framework.Endpoint
	for i, tr := range []framework.Transport{ta, tb} {
		rank := []int{a, b}[i]
		e, err := tr.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindMemory, Rank: rank, Ranks: []int{a, b}, Group: "test",
			Device: framework.Device{Type: "hip", Index: rank}})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, e)
	}
	return ta.Connect(t.Context(), ends[0].ID, []framework.Peer{{Rank: b, Address: ends[1].Address}})
}

// attach has a connection reach memory of the peer's process that has some shares, and returns those that it is to try.
func attach(t *testing.T, ta, tb framework.Transport, conn framework.ID, kinds ...framework.ShareKind) ([]framework.ShareKind, error) {
	t.Helper()
	seg := framework.Segment{Device: framework.Device{Type: "hip"}, Bytes: 8192}
	for _, k := range kinds {
		s := framework.Share{Kind: k, Blob: []byte("handle")}
		if k.HasFD() {
			file, err := os.CreateTemp(t.TempDir(), "share")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
			s = framework.Share{Kind: k, FD: file}
		}
		seg.Shares = append(seg.Shares, s)
	}
	r, err := tb.Register(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Key.Close()
	got, err := ta.Attach(t.Context(), conn, 0, []framework.Parcel{r.Key})
	if err != nil {
		return nil, err
	}
	defer got.Close()
	var chosen []framework.ShareKind
	for _, s := range got.Mappings[0].Shares {
		chosen = append(chosen, s.Kind)
	}
	return chosen, nil
}

// Handles of the runtime come before descriptors, whose memory is uncached in late versions alone. No process opens its own handles.
func TestHandlesComeFirst(t *testing.T) {
	gpus := recorded(t, "mi300x")
	ta, tb := on(t, gpus, xgmi.Config{}.Defaults()), on(t, gpus, xgmi.Config{}.Defaults())
	all := []framework.ShareKind{framework.ShareLocal, framework.ShareVMM, framework.ShareLegacyIPC}
	for _, c := range []struct {
		peer framework.Transport
		want []framework.ShareKind
	}{
		{tb, []framework.ShareKind{framework.ShareLegacyIPC, framework.ShareVMM, framework.ShareLocal}},
		{ta, []framework.ShareKind{framework.ShareLocal, framework.ShareVMM}},
	} {
		conn, err := link(t, ta, c.peer, 0, 7)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := attach(t, ta, c.peer, conn, all...); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v, %v: expected %v", got, err, c.want)
		}
	}
}

// Not every two GPUs of an MI250 machine have links between them. They reach each other through others, unless links are required.
func TestMachineThatIsNoFullMesh(t *testing.T) {
	gpus := recorded(t, "mi250")
	strict := xgmi.Config{}.Defaults()
	strict.RequireXGMI = true
	linked, apart := 0, 0
	for peer := 1; peer < len(gpus); peer++ {
		links, _ := gpus[0].NVLinks(gpus[peer])
		ta, tb := on(t, gpus, xgmi.Config{}.Defaults()), on(t, gpus, xgmi.Config{}.Defaults())
		conn, err := link(t, ta, tb, 0, peer)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := attach(t, ta, tb, conn, framework.ShareLegacyIPC); err != nil {
			t.Errorf("GPU %d: %v", peer, err)
		}
		_, err = link(t, on(t, gpus, strict), tb, 0, peer)
		if links > 0 {
			linked++
			if err != nil {
				t.Errorf("GPU %d has %d links: %v", peer, links, err)
			}
			continue
		}
		apart++
		if framework.Class(err) != framework.ErrUnavailable || framework.PeerOf(err) != peer || !strings.Contains(err.Error(), "not joined by xGMI (xGMI through other GPUs), and require_xgmi is on") ||
			!strings.Contains(err.Error(), gpus[0].PCI) || !strings.Contains(err.Error(), gpus[peer].PCI) {
			t.Errorf("GPU %d: %v: expected a refusal that names both GPUs and the path", peer, err)
		}
	}
	if linked == 0 || apart == 0 {
		t.Errorf("%d GPUs are linked to the first and %d are not: expected both", linked, apart)
	}
}

// A pair that cannot address each other's memory is refused by name, and takes memory of the host.
func TestPairWithoutAccess(t *testing.T) {
	gpus := recorded(t, "mi300x")
	for i := range gpus {
		for j := range gpus[i].Access {
			gpus[i].Access[j].Read, gpus[i].Access[j].Write = "off", "off"
		}
	}
	ta, tb := on(t, gpus, xgmi.Config{}.Defaults()), on(t, gpus, xgmi.Config{}.Defaults())
	conn, err := link(t, ta, tb, 2, 5)
	if err != nil {
		t.Fatal(err)
	}
	_, err = attach(t, ta, tb, conn, framework.ShareLegacyIPC, framework.ShareVMM)
	if framework.Class(err) != framework.ErrUnavailable || framework.PeerOf(err) != 5 || !strings.Contains(err.Error(), gpus[2].PCI) || !strings.Contains(err.Error(), gpus[5].PCI) ||
		!strings.Contains(err.Error(), "gpu_memory: host") {
		t.Errorf("%v: expected a refusal that names the pair and what helps", err)
	}
}

// Memory that the device cannot share is refused with what helps.
func TestMemoryThatIsNotShared(t *testing.T) {
	seg := framework.Segment{Device: framework.Device{Type: "hip"}, Bytes: 8192, Shares: []framework.Share{{Kind: framework.ShareLocal, Blob: []byte("handle")}}}
	_, err := on(t, recorded(t, "mi300x"), xgmi.Config{}.Defaults()).Register(t.Context(), seg)
	if framework.Class(err) != framework.ErrUnsupported || !strings.Contains(err.Error(), "gpu_memory: host") {
		t.Errorf("%v: expected a refusal that names what helps", err)
	}
}

// The devices of one divided card, which differ in the function of their address alone, reach each other.
func TestPartsOfACard(t *testing.T) {
	gpus := recorded(t, "cpx")
	strict := xgmi.Config{}.Defaults()
	strict.RequireXGMI = true
	for peer := 1; peer < len(gpus); peer++ {
		ta, tb := on(t, gpus, strict), on(t, gpus, strict)
		conn, err := link(t, ta, tb, 0, peer)
		if err != nil {
			t.Fatalf("part %d: %v", peer, err)
		}
		if got, err := attach(t, ta, tb, conn, framework.ShareLegacyIPC); err != nil || len(got) != 1 {
			t.Errorf("part %d: %v, %v", peer, got, err)
		}
	}
	for i := range gpus {
		live, err := on(t, gpus, strict).(framework.Prober).Probe(t.Context(), framework.Facts{Other: map[string]string{topo.FactKey("hip", "pci"): gpus[i].PCI}})
		if err != nil || !live.LinksKnown || len(live.Links) != len(gpus)-1 {
			t.Errorf("part %d: %+v, %v: expected links to the other %d", i, live, err, len(gpus)-1)
		}
	}
}

// A rank's number of a device is that of HIP, under the variables that hide some.
func TestVisibleVariables(t *testing.T) {
	gpus := recorded(t, "mi300x")
	t.Setenv("ROCR_VISIBLE_DEVICES", "4,5,6,7")
	t.Setenv("HIP_VISIBLE_DEVICES", "3,1")
	tr := on(t, gpus, xgmi.Config{}.Defaults())
	_, err := tr.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindMemory, Rank: 0, Ranks: []int{0, 1}, Group: "test", Device: framework.Device{Type: "hip", Index: 2}})
	if framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "shows 2 GPUs") || !strings.Contains(err.Error(), "HIP_VISIBLE_DEVICES") {
		t.Errorf("the third of two: %v", err)
	}
}

// The links of a machine are facts for the model, and its lines are no longer than 16 bytes.
func TestProbe(t *testing.T) {
	gpus := recorded(t, "mi300x")
	tr := on(t, gpus, xgmi.Config{}.Defaults()).(framework.Prober)
	live, err := tr.Probe(t.Context(), framework.Facts{Other: map[string]string{topo.FactKey("hip", "pci"): gpus[1].PCI}})
	if err != nil {
		t.Fatal(err)
	}
	if !live.Available || live.WholeLines || !live.LinksKnown || len(live.Links) != 7 || live.Facts["xgmi"] != "1 between every pair" || live.Facts["peer access"] != "all pairs" {
		t.Errorf("%+v", live)
	}
	alone, err := on(t, nil, xgmi.Config{}.Defaults()).(framework.Prober).Probe(t.Context(), framework.Facts{})
	if err != nil || alone.Available || !strings.Contains(alone.Reason, "/dev/kfd") {
		t.Errorf("without GPUs: %+v, %v", alone, err)
	}
}
