package gpulink

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

func TestProbe(t *testing.T) {
	for machine, want := range map[string]map[string]string{
		"h200":        {"devices": "8 NVIDIA H200", "peer access": "all pairs", "nvlink": "18 between every pair, through switches", "fabric": "completed"},
		"a100-direct": {"devices": "4 NVIDIA A100-SXM4-40GB", "peer access": "all pairs", "nvlink": "4 between every pair"},
		"a10":         {"devices": "4 NVIDIA A10G", "peer access": "none: chipset not supported", "nvlink": "none"},
		"mig":         {"devices": "1 NVIDIA A100-PCIE-40GB in parts, 1 NVIDIA A100-PCIE-40GB", "peer access": "none: GPU not supported", "nvlink": "none"},
	} {
		live := must[framework.Live](t)(transport(t, recorded(t, machine)).Probe(bound(t), framework.Facts{}))
		if !live.Available || live.Reason != "" {
			t.Errorf("%s: not available: %s", machine, live.Reason)
		}
		if whole := strings.Contains(want["nvlink"], "between every pair"); live.WholeLines != whole {
			t.Errorf("%s: whole lines %v, want %v", machine, live.WholeLines, whole)
		}
		for k, v := range want {
			if live.Facts[k] != v {
				t.Errorf("%s: %s is %q, want %q", machine, k, live.Facts[k], v)
			}
		}
	}
}

func TestProbeOfMixedMachines(t *testing.T) {
	ok := topo.Access{Read: topo.AccessOK, Write: topo.AccessOK}
	whole := true
	pair := func(change func(gpus []topo.GPU)) map[string]string {
		gpus := []topo.GPU{{Name: "A", PCI: "0000:01:00.0"}, {Name: "A", PCI: "0000:02:00.0"}, {Name: "B", PCI: "0000:03:00.0"}}
		change(gpus)
		tr := transport(t, func(context.Context) ([]topo.GPU, error) { return gpus, nil })
		live := must[framework.Live](t)(tr.Probe(bound(t), framework.Facts{}))
		whole = live.WholeLines
		return live.Facts
	}
	to := func(g *topo.GPU, peer string, a topo.Access) { a.Peer = peer; g.Access = append(g.Access, a) }
	if f := pair(func([]topo.GPU) {}); f["peer access"] != "unknown" || f["devices"] != "2 A, 1 B" {
		t.Errorf("%v", f)
	}
	f := pair(func(g []topo.GPU) {
		for i := range g {
			for j := range g {
				switch {
				case i == j:
				case i < 2 && j < 2:
					to(&g[i], g[j].PCI, ok)
				default:
					to(&g[i], g[j].PCI, topo.Access{Read: "topology", Write: "topology"})
				}
			}
		}
		g[0].Links = []topo.Link{{Peer: g[1].PCI, Count: 2}}
		g[1].Links = []topo.Link{{Peer: g[0].PCI, Count: 2}}
	})
	if f["peer access"] != "1 of 3 pairs; others: topology" || f["nvlink"] != "0 to 2 between pairs" || whole {
		t.Errorf("%v, whole lines %v", f, whole)
	}
}

// A probe by a rank that names its own GPU reports the links from there.
func TestProbeTellsLinksOfTheOwnGPU(t *testing.T) {
	for machine, want := range map[string]string{
		"h200":        "0000:19:00.0 18 v4 switch, ",
		"a100-direct": "0000:01:00.0 4 v3, 0000:81:00.0 4 v3, 0000:c1:00.0 4 v3",
		"a10":         "none",
	} {
		gpus := must[[]topo.GPU](t)(recorded(t, machine)(bound(t)))
		facts := framework.Facts{Other: map[string]string{topo.FactPCI: gpus[1].PCI}}
		live := must[framework.Live](t)(transport(t, recorded(t, machine)).Probe(bound(t), facts))
		if got := topo.FormatPairs(live.Links); !live.LinksKnown || !strings.HasPrefix(got, want) || live.Facts["nvlink of this GPU"] != got {
			t.Errorf("%s: %q, want %q", machine, got, want)
		}
		live = must[framework.Live](t)(transport(t, recorded(t, machine)).Probe(bound(t), framework.Facts{}))
		if live.LinksKnown || live.Links != nil {
			t.Errorf("%s: a rank that has not said where it is was told %+v", machine, live.Links)
		}
	}
}

func TestProbeWithoutDriver(t *testing.T) {
	live := must[framework.Live](t)(transport(t, noDriver).Probe(bound(t), framework.Facts{}))
	if live.Available || live.Reason != "no NVIDIA driver: install it" {
		t.Errorf("%+v: want the reason alone", live)
	}
	none := func(context.Context) ([]topo.GPU, error) { return nil, nil }
	live = must[framework.Live](t)(transport(t, none).Probe(bound(t), framework.Facts{}))
	if live.Available || !strings.Contains(live.Reason, "shows no GPU") {
		t.Errorf("%+v: want the reason", live)
	}
	broken := func(context.Context) ([]topo.GPU, error) { return nil, framework.ErrInvalid }
	if _, err := transport(t, broken).Probe(bound(t), framework.Facts{}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: want what went wrong", err)
	}
	_, err := transport(t, noDriver).Listen(bound(t), config(framework.KindMemory, 0, 0, 1))
	if framework.Class(err) != framework.ErrUnavailable || !strings.Contains(err.Error(), "install it") {
		t.Errorf("listen: %v: want ErrUnavailable that says what to do", err)
	}
}

func TestProbeRequiringNVLink(t *testing.T) {
	strict := func(c *Options) { c.RequireLinks = true }
	for machine, want := range map[string]bool{"h200": true, "a10": false} {
		live := must[framework.Live](t)(transport(t, recorded(t, machine), strict).Probe(bound(t), framework.Facts{}))
		if live.Available != want || want == (live.Reason != "") {
			t.Errorf("%s: %+v, want available %v", machine, live, want)
		}
	}
}

// The driver is asked once, and again only if it was not there.
func TestDriverIsAskedOnce(t *testing.T) {
	asked, there := 0, false
	tr := transport(t, func(ctx context.Context) ([]topo.GPU, error) {
		asked++
		if !there {
			return noDriver(ctx)
		}
		return recorded(t, "h200")(ctx)
	})
	for i, want := range []int{1, 2, 3, 3, 3} {
		there = i >= 2
		live := must[framework.Live](t)(tr.Probe(bound(t), framework.Facts{}))
		if asked != want || live.Available != there {
			t.Errorf("call %d: asked %d times, available %v: want %d, %v", i, asked, live.Available, want, there)
		}
	}
}

// A rank that has opened a GPU has a driver, whatever can be seen of it here.
func TestRankThatHasAGPU(t *testing.T) {
	facts := framework.Facts{Other: map[string]string{topo.FactPCI: "0000:19:00.0"}}
	tr := transport(t, noDriver)
	live := must[framework.Live](t)(tr.Probe(bound(t), facts))
	if !live.Available || live.Facts["devices"] != "0000:19:00.0" || live.Facts["peer access"] != "unknown: no NVIDIA driver: install it" {
		t.Errorf("%+v: want available, with the word of the rank", live)
	}
	c := config(framework.KindMemory, 0, 0, 1)
	c.Facts = facts
	if got := must[address](t)(decodeAddress(head, listen(t, tr, c).Address.Data)).gpu; got != (identity{pci: "0000:19:00.0"}) {
		t.Errorf("the address says %+v", got)
	}
	strict := transport(t, noDriver, func(c *Options) { c.RequireLinks = true })
	if live := must[framework.Live](t)(strict.Probe(bound(t), facts)); live.Available {
		t.Error("with require_nvlink the transport takes a GPU without known links")
	}
}
