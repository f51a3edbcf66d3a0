package setup

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// linkProber reports links.
type linkProber struct {
	framework.Transport
	live framework.Live
	err  error
}

func (p linkProber) Probe(context.Context, framework.Facts) (framework.Live, error) {
	return p.live, p.err
}

func TestLinksForCollectives(t *testing.T) {
	probed := framework.Description{Probe: true, Channels: []framework.Kind{framework.KindMemory}}
	ports := framework.Description{Probe: true, Channels: []framework.Kind{framework.KindPort}}
	known := framework.Live{LinksKnown: true, Links: []framework.DeviceLink{{Peer: "0000:19:00.0", Count: 18, Version: 4, Switch: true}, {Peer: "0000:3b:00.0", Count: 4}}}
	both := []collectives.NVLink{{Peer: "0000:19:00.0", Count: 18, Version: 4, Switch: true}, {Peer: "0000:3b:00.0", Count: 4}}
	for name, x := range map[string]struct {
		prober linkProber
		d      framework.Description
		host   bool
		want   collectives.Links
	}{
		"links":        {linkProber{live: known}, probed, false, collectives.Links{Known: true, NVLinks: both}},
		"no links":     {linkProber{live: framework.Live{LinksKnown: true}}, probed, false, collectives.Links{Known: true}},
		"unknown":      {linkProber{live: framework.Live{Facts: map[string]string{"nvlink": "none"}}}, probed, false, collectives.Links{}},
		"an error":     {linkProber{live: known, err: framework.ErrPlugin}, probed, false, collectives.Links{}},
		"of a network": {linkProber{live: known}, ports, false, collectives.Links{}},
		"host memory":  {linkProber{live: known}, probed, true, collectives.Links{Known: true, NVLinks: both, HostMemory: true}},
	} {
		ts := []*comm.Transport{{Transport: x.prober, Name: "fake", Description: x.d}}
		found := probeLinks(t.Context(), ts, framework.Facts{})
		if got := Links(fstest.MapFS{}, "cuda", found, framework.Facts{}, x.host); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
}

// The word of the device itself comes first, also where it has no links, and the rate of its bus goes by its type.
func TestLinksOfTheDeviceItself(t *testing.T) {
	acme := framework.DeviceLink{Peer: "0000:3b:00.0", Count: 4, Switch: true, Kind: "AcmeLink 2", Rate: 200, Latency: 0.9}
	probed := []Probed{{"fake", framework.Live{LinksKnown: true, Links: []framework.DeviceLink{{Peer: "0000:19:00.0", Count: 1}}}, nil}}
	at := "sys/bus/pci/devices/0000:19:00.0/"
	root := fstest.MapFS{at + "max_link_speed": {Data: []byte("16.0 GT/s PCIe\n")}, at + "max_link_width": {Data: []byte("16\n")}}
	facts := framework.Facts{LinksKnown: true, Links: []framework.DeviceLink{acme}, Other: map[string]string{"acme/pci": "0000:19:00.0"}}
	l := Links(root, "acme", probed, facts, false)
	if want := []collectives.NVLink{collectives.NVLink(acme)}; !l.Known || !reflect.DeepEqual(l.NVLinks, want) || l.PCIe < 31 {
		t.Errorf("%+v: expected %+v, and a bus of 31.5 GB/s", l, want)
	}
	facts.Links = nil
	if l := Links(root, "acme", probed, facts, false); !l.Known || len(l.NVLinks) != 0 {
		t.Errorf("%+v: expected a device without links", l)
	}
}

// Lines are for links that are known to carry them whole.
func TestLinksThatTearLines(t *testing.T) {
	for _, x := range []struct {
		live framework.Live
		err  error
		torn bool
	}{
		{framework.Live{WholeLines: true}, nil, false},
		{framework.Live{}, nil, true},
		{framework.Live{Facts: map[string]string{"nvlink": "18 between every pair"}}, nil, true}, // words are for people
		{framework.Live{WholeLines: true}, framework.ErrPlugin, true},
	} {
		found := []Probed{{"fake", x.live, x.err}}
		if got := tearsLines(found, slog.New(slog.DiscardHandler)); got != x.torn {
			t.Errorf("%+v, %v: torn %v, want %v", x.live, x.err, got, x.torn)
		}
	}
}

func TestRateOfTheBus(t *testing.T) {
	bus := func(speed, width string) fs.FS {
		at := "sys/bus/pci/devices/0000:19:00.0/"
		return fstest.MapFS{at + "max_link_speed": {Data: []byte(speed + "\n")}, at + "max_link_width": {Data: []byte(width + "\n")}}
	}
	for name, x := range map[string]struct {
		root fs.FS
		want float64
	}{
		"version 3":       {bus("8.0 GT/s PCIe", "16"), 15.75},
		"version 4":       {bus("16.0 GT/s PCIe", "16"), 31.5},
		"version 5":       {bus("32.0 GT/s PCIe", "16"), 63},
		"half as wide":    {bus("16.0 GT/s PCIe", "8"), 15.75},
		"made up":         {bus("2.5 GT/s PCIe", "255"), 0},
		"not known":       {bus("Unknown", "0"), 0},
		"lanes made up":   {bus("32.0 GT/s PCIe", "63"), 0},
		"no such devices": {fstest.MapFS{}, 0},
	} {
		if got := busRate(x.root, "0000:19:00.0"); math.Abs(got-x.want) > 0.1 {
			t.Errorf("%s: %.2f GB/s, want %.2f", name, got, x.want)
		}
	}
	if got := busRate(bus("32.0 GT/s PCIe", "16"), ""); got != 0 {
		t.Errorf("a device without a known address: %.2f GB/s", got)
	}
}
