package topo

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// The words for a type of device are data: one that nobody knows has those that hold for any.
func TestWordsOfDevices(t *testing.T) {
	for typ, want := range map[string][4]string{
		"cuda": {"GPU2", "NV", "NVLink", "nvidia/pci"}, "hip": {"hip:2", "XGMI", "xGMI", "hip/pci"}, "acme": {"acme:2", "L", "links", "acme/pci"},
	} {
		g := GPU{Device: framework.Device{Type: typ, Index: 2}}
		h := Host{GPUs: []GPU{g, g}}
		if got := [4]string{g.label(), g.linkWord(), h.linkHeading(), FactKey(typ, "pci")}; got != want {
			t.Errorf("%s: %q: expected %q", typ, got, want)
		}
	}
	several := Host{GPUs: []GPU{{Device: framework.Device{Type: "acme"}}, {Device: framework.Device{Type: "hip"}}}}
	if got := several.linkHeading(); got != "NVLink" {
		t.Errorf("several makers: %q", got)
	}
	if FactKey("cuda", "uuid") != FactUUID || FactKey("cuda", "pci") != FactPCI || FactKey("cuda", "memory") != FactMemory {
		t.Error("the keys of NVIDIA's GPUs have changed")
	}
}
