package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func cuda(n int) framework.Device { return framework.Device{Type: "cuda", Index: n} }

func TestBetween(t *testing.T) {
	for _, c := range []struct {
		machine string
		a, b    int
		want    string
	}{
		{"h200", 0, 7, "NV18"},
		{"a100-direct", 0, 3, "NV4"},
		{"a10", 1, 2, PHB},
		{"two-sockets", 0, 1, SYS},
		{"mig", 0, 1, NODE},
	} {
		h := readMachine(t, c.machine)
		if got := h.Between(h.GPUs[c.a], h.GPUs[c.b]); got != c.want {
			t.Errorf("%s: GPU%d to GPU%d is %s, want %s", c.machine, c.a, c.b, got, c.want)
		}
	}
}

// The adapters near each GPU are named by the words that adapters are chosen by.
// Devices of two makers are not joined because both have switches.
func TestSwitchesOfTwoMakers(t *testing.T) {
	g := func(of string, index int) GPU {
		return GPU{Device: framework.Device{Type: of, Index: index}, UUID: fmt.Sprint(of, index), Links: []Link{{Peer: Switch, Count: 4}}}
	}
	for _, x := range []struct {
		of   string
		want int
	}{{"cuda", 4}, {"acme", 0}} {
		if n, _ := g("cuda", 0).NVLinks(g(x.of, 1)); n != x.want {
			t.Errorf("%d links to %s: expected %d", n, x.of, x.want)
		}
	}
}

func TestNearestAdapterOfEachGPU(t *testing.T) {
	h := readMachine(t, "dgx")
	for i := range 8 {
		f := h.Facts(h.At(cuda(i), nil))
		if want := fmt.Sprintf("mlx5_%d", i); f.NICs[0].Name != want || f.NICs[0].Distance != PIX {
			t.Errorf("GPU%d: nearest is %+v, want %s by %s", i, f.NICs[0], want, PIX)
		}
		if f.NUMA != i/4 {
			t.Errorf("GPU%d: node %d, want %d", i, f.NUMA, i/4)
		}
		want := map[string]string{FactPCI: h.GPUs[i].PCI, FactUUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012x", i)}
		if !reflect.DeepEqual(f.Other, want) {
			t.Errorf("GPU%d: other facts %v, want %v", i, f.Other, want)
		}
	}
	if f := h.Facts(h.At(framework.Host, nil)); len(f.Other) != 0 {
		t.Errorf("a rank on processors has facts of a GPU: %v", f.Other)
	}
}

// A rank that changes its facts does not change those of the next.
func TestFactsAreCopies(t *testing.T) {
	h := readMachine(t, "h200")
	p := h.At(cuda(0), nil)
	h.Facts(p).Other[FactPCI] = "elsewhere"
	if got := h.Facts(p).Other[FactPCI]; got != h.GPUs[0].PCI {
		t.Errorf("the facts share a map: %q", got)
	}
}

func TestAccessTo(t *testing.T) {
	h200, a10, bare := readMachine(t, "h200"), readMachine(t, "a10"), readMachine(t, "two-sockets")
	if a, known := h200.GPUs[0].AccessTo(h200.GPUs[5]); !known || !a.Granted() || a.Atomics != AccessOK {
		t.Errorf("H200: %+v, told %v", a, known)
	}
	if a, known := a10.GPUs[0].AccessTo(a10.GPUs[1]); !known || a.Granted() || a.Why() != "chipset not supported" {
		t.Errorf("A10: %+v, told %v", a, known)
	}
	if a, known := a10.GPUs[2].AccessTo(a10.GPUs[2]); !known || !a.Granted() {
		t.Errorf("a GPU and its own memory: %+v, told %v", a, known)
	}
	if _, known := bare.GPUs[0].AccessTo(bare.GPUs[1]); known {
		t.Error("a driver that said nothing has told")
	}
	if a := (Access{Read: AccessOK, Write: "disabled"}); a.Granted() || a.Why() != "disabled" {
		t.Errorf("reading alone is not access: %q", a.Why())
	}
}

// A machine with GPUs is recorded with what its driver said, but for identities, and
// reads back the same.
func TestRecordGPUs(t *testing.T) {
	for _, name := range []string{"dgx", "a10", "mig"} {
		root := machine(t, name)
		h, err := Read(root, Recorded(root))
		if err != nil {
			t.Fatal(err)
		}
		find := func() ([]GPU, error) {
			gpus := append([]GPU(nil), h.GPUs...)
			for i := range gpus {
				gpus[i].UUID = "GPU-secret"
				if m := gpus[i].MIG; m != nil {
					gpus[i].MIG = &MIG{Parts: append([]Part(nil), m.Parts...)}
					gpus[i].MIG.Parts[0].UUID = "MIG-secret"
				}
			}
			return gpus, nil
		}
		var recording bytes.Buffer
		if err := Record(root, &recording, find); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(recording.String(), "secret") {
			t.Errorf("%s: the recording has identities of GPUs:\n%s", name, recording.String())
		}
		again := Replay(recording.String())
		back, err := Read(again, Recorded(again))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back.GPUs, h.GPUs) {
			t.Errorf("%s: reads back as\n%+v\nwant\n%+v", name, back.GPUs, h.GPUs)
		}
	}
}

// Links of devices that are on no bus lead to identities, some of them of devices that this process does not see. A recording has
// none of these, nor that of a network, and joins what was joined.
func TestRecordingOfUnseenDevices(t *testing.T) {
	find := func() ([]GPU, error) {
		device := func(i int) framework.Device { return framework.Device{Type: "acme", Index: i} }
		return []GPU{
			{Device: device(0), UUID: "secret-0", Links: []Link{{Peer: "secret-1", Count: 1}, {Peer: "secret-7", Count: 2}, {Peer: Switch, Count: 1}}},
			{Device: device(1), UUID: "secret-1", Links: []Link{{Peer: "secret-0", Count: 1}, {Peer: "secret-7", Count: 2}, {Peer: "secret-8", Count: 1}},
				Fabric: &Fabric{State: "completed", Cluster: "secret", Clique: 3}},
		}, nil
	}
	var recording bytes.Buffer
	if err := Record(Replay("sys/devices/system/node/online = 0"), &recording, find); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(recording.String(), "secret") {
		t.Errorf("the recording has identities:\n%s", recording.String())
	}
	again := Replay(recording.String())
	h, err := Read(again, Recorded(again))
	if err != nil || len(h.GPUs) != 2 {
		t.Fatalf("%+v, %v", h, err)
	}
	a, b := h.GPUs[0], h.GPUs[1]
	if len(a.Links) != 3 || len(b.Links) != 3 || a.Links[0].Peer != b.UUID || b.Links[0].Peer != a.UUID || a.Links[1].Peer != b.Links[1].Peer || a.Links[2].Peer != Switch ||
		b.Links[2].Peer == b.Links[1].Peer || b.Fabric.Clique != 3 {
		t.Errorf("%+v and %+v: expected links to each other, to one device that is not there, and to others", a, b)
	}
}

func TestRecordingThatIsDamaged(t *testing.T) {
	root := Replay("sys/class/net/\ngpus/00 = {\"name\":")
	if _, err := Read(root, Recorded(root)); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "gpus/00") {
		t.Errorf("%v: want ErrInvalid that names the line", err)
	}
}

// A driver that is not there is no failure, and is reported.
func TestMissingDriver(t *testing.T) {
	h := readMachine(t, "no-driver")
	if len(h.GPUs) != 0 || len(h.Missing) != 1 || !strings.Contains(h.Missing[0], "no NVIDIA driver") {
		t.Errorf("GPUs %v, missing %q", h.GPUs, h.Missing)
	}
	var b bytes.Buffer
	if err := h.PrintJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["missing"] == nil {
		t.Errorf("JSON without the reason: %v, %s", err, b.String())
	}
}

// FuzzRecordedGPUs prints and draws whatever a recording claims.
func FuzzRecordedGPUs(f *testing.F) {
	f.Add(`{"device":{"Type":"cuda","Index":0},"name":"<&>","numa":0,"pci":"x","links":[{"peer":"switch","count":-5}]}`)
	f.Add(`{"device":{"Type":"hip","Index":-1},"numa":99,"pci":"0000:1d:00.0","mig":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\r\n") {
			return
		}
		root := Replay("sys/class/net/\ngpus/00 = " + text + "\ngpus/01 = " + text)
		h, err := Read(root, Recorded(root))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := h.Print(&b); err != nil {
			t.Error(err)
		}
		b.Reset()
		if err := h.SVG(&b); err != nil {
			t.Error(err)
		}
		wellFormedXML(t, b.Bytes())
	})
}
