package setup

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// numbered is a maker's device on no bus, with links.
type numbered struct {
	joined
	id byte
}

func (n numbered) UUID() [16]byte { return [16]byte{0: n.id} }

// Devices of a maker are in the tables of topo with their links, on a bus or not, and a recording shows the same.
func TestMakersDevicesInTheTopology(t *testing.T) {
	link := func(id byte) framework.DeviceLink {
		return framework.DeviceLink{Peer: uuidText("acme", [16]byte{0: id}), Count: 2, Kind: "AcmeLink 2"}
	}
	gpus := []topo.GPU{
		described(numbered{joined{placed{typ: "acme"}, []framework.DeviceLink{link(2)}}, 1}),
		described(numbered{joined{placed{typ: "acme"}, []framework.DeviceLink{link(1)}}, 2}),
		described(numbered{joined{placed{typ: "acme"}, nil}, 3}),
	}
	for i := range gpus {
		gpus[i].Device.Index = i
	}
	root := machineWith()
	table := func(finders ...topo.Finder) string {
		h, err := topo.Read(root, finders...)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := h.Print(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	got := table(func() ([]topo.GPU, error) { return gpus, nil })
	for _, want := range []string{
		`(?m)^acme:0 +acme:0 +a GPU .* 2 AcmeLink 2 +`, `(?m)^acme:0 +X +L2 +NODE`, `(?m)^acme:1 +L2 +X +NODE`, `(?m)^acme:2 +NODE +NODE +X`, "L# .*= that many links of the maker's",
	} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("the table has nothing like %q:\n%s", want, got)
		}
	}
	var recording bytes.Buffer
	if err := topo.Record(root, &recording, func() ([]topo.GPU, error) { return gpus, nil }); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(recording.String(), "01000000-0000") {
		t.Errorf("the recording has the UUID of a device: %s", recording.String())
	}
	if again := table(topo.Recorded(topo.Replay(recording.String()))); again[strings.Index(again, "acme:0"):] != got[strings.Index(got, "acme:0"):] {
		t.Errorf("the recording shows\n%s\nof\n%s", again, got)
	}
}

func TestLinksToASwitchAreOneBundle(t *testing.T) {
	got := bundles([]framework.DeviceLink{{Peer: "a", Count: 4, Switch: true}, {Peer: "b", Count: 4, Switch: true}, {Peer: "c", Count: 1}})
	if len(got) != 2 || got[0] != (topo.Link{Peer: topo.Switch, Count: 4}) || got[1] != (topo.Link{Peer: "c", Count: 1}) {
		t.Errorf("%+v: expected one bundle to the switch, and one to c", got)
	}
}
