package setup

import (
	"cmp"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// placed is a device that knows where it is.
type placed struct {
	device.Device
	pci string
	typ string
}

// joined is one that lists its links.
type joined struct {
	placed
	links []framework.DeviceLink
}

func (j joined) Links() (string, []framework.DeviceLink, bool) { return "", j.links, true }

func (p placed) Info() device.Info {
	return device.Info{Device: framework.Device{Type: cmp.Or(p.typ, "cuda"), Index: 3}, Name: "a GPU"}
}
func (p placed) PCI() string { return p.pci }
func (p placed) UUID() (id [16]byte) {
	for i := range id {
		id[i] = byte(0xa0 + i)
	}
	return id
}

func TestFactsOfAGPU(t *testing.T) {
	f := Facts(os.DirFS("/"), placed{pci: "0000:AB:00.0"}, "blade-7", 0, slog.New(slog.DiscardHandler))
	if f.Host != "blade-7" {
		t.Errorf("host %q: expected the one that the job goes by", f.Host)
	}
	if f.Other[topo.FactPCI] != "0000:ab:00.0" || f.Other[topo.FactUUID] != "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf" {
		t.Errorf("other facts %v: expected address and UUID of the device", f.Other)
	}
}

// The facts of a maker's device go by its type. One that is on no bus is where its rank is.
func TestFactsOfAMakersDevice(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	f := Facts(os.DirFS("/"), placed{pci: "0000:AB:00.0", typ: "acme"}, "blade-7", 0, log)
	if f.Other["acme/pci"] != "0000:ab:00.0" || f.Other["acme/uuid"] != "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf" || len(f.Other) != 2 {
		t.Errorf("facts %v: expected address and UUID under acme/", f.Other)
	}
	if off, own := Facts(os.DirFS("/"), placed{typ: "acme"}, "blade-7", 0, log), Facts(os.DirFS("/"), onHost(t), "blade-7", 0, log); len(off.Other) != 1 || off.Other["acme/uuid"] == "" || off.NUMA != own.NUMA {
		t.Errorf("facts %v and memory node %d of a device that is on no bus: expected its UUID, and node %d", off.Other, off.NUMA, own.NUMA)
	}
	links := []framework.DeviceLink{{Peer: "0000:3b:00.0", Count: 4, Kind: "AcmeLink 2", Rate: 200}}
	if f := Facts(os.DirFS("/"), joined{placed{typ: "acme"}, links}, "blade-7", 0, log); !f.LinksKnown || !reflect.DeepEqual(f.Links, links) {
		t.Errorf("links %+v, known %v: expected those of the device", f.Links, f.LinksKnown)
	}
}

func TestFactsOfTheHost(t *testing.T) {
	f := Facts(os.DirFS("/"), onHost(t), "blade-7", 0, slog.New(slog.DiscardHandler))
	if f.Host != "blade-7" || len(f.Other) != 0 {
		t.Errorf("%+v: expected the host as the job calls it, and no facts of a GPU", f)
	}
	h, err := topo.System()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.NICs) != len(h.NICs) {
		t.Errorf("the facts have %d adapters, of %d", len(f.NICs), len(h.NICs))
	}
}

func onHost(t *testing.T) device.Device {
	t.Helper()
	d, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// machineWith is a machine with one memory node, and adapters of InfiniBand that are as far
// from its GPU as each other: behind switches of their own.
func machineWith(names ...string) fs.FS {
	lines := []string{"sys/devices/system/node/online = 0", "sys/devices/system/node/node0/cpulist = 0-4095",
		"sys/bus/pci/devices/0000:1d:00.0 -> ../../../devices/pci0000:17/0000:17:00.0/0000:1b:00.0/0000:1d:00.0",
		"sys/bus/pci/devices/0000:1d:00.0/numa_node = 0"}
	for i, name := range names {
		dir := "sys/class/infiniband/" + name
		lines = append(lines, fmt.Sprintf("%s -> ../../devices/pci0000:17/0000:17:00.0/0000:1c:0%d.0/0000:%x:00.0/infiniband/%s", dir, i, 0x20+i, name),
			dir+"/device/numa_node = 0", dir+"/ports/1/state = 4: ACTIVE", dir+"/ports/1/link_layer = InfiniBand", dir+"/ports/1/rate = 400 Gb/sec (4X NDR)")
	}
	return topo.Replay(strings.Join(lines, "\n"))
}

// Four ranks on processors use two adapters, two each, and so do two ranks on GPUs to
// which both are equally near. The log says which and why.
func TestRanksShareOutAdapters(t *testing.T) {
	machine := machineWith("mlx5_0", "mlx5_1")
	for what, x := range map[string]struct {
		dev   device.Device
		ranks int
	}{"processors": {onHost(t), 4}, "GPU": {placed{pci: "0000:1D:00.0"}, 2}} {
		users := map[string]int{}
		for turn := range x.ranks {
			var text strings.Builder
			log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
			f := Facts(machine, x.dev, "blade-7", turn, log)
			if len(f.NICs) != 2 || f.NICs[0].Distance != f.NICs[1].Distance || f.NUMA != 0 {
				t.Fatalf("%s, rank %d: %+v: expected two adapters at one distance", what, turn, f)
			}
			users[f.NICs[0].Name]++
			if again := Facts(machine, x.dev, "blade-7", turn, log); !reflect.DeepEqual(f, again) {
				t.Errorf("%s, rank %d: %v, then %v", what, turn, f.NICs, again.NICs)
			}
			for _, want := range []string{inOrder(f.NICs), fmt.Sprintf("its rank %d", turn)} {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%s, rank %d: the log does not say %q: %s", what, turn, want, text.String())
				}
			}
		}
		if half := x.ranks / 2; users["mlx5_0"] != half || users["mlx5_1"] != half {
			t.Errorf("%s: %d ranks use %v", what, x.ranks, users)
		}
	}
}

func TestTurnOf(t *testing.T) {
	for what, x := range map[string]struct {
		env   map[string]string
		rank  int
		there []int
		want  int
	}{
		"launcher":         {map[string]string{"RANK": "6", "WORLD_SIZE": "8", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"}, 6, []int{6}, 2},
		"no count":         {nil, 6, []int{2, 4, 6}, 2},
		"alone":            {nil, 0, []int{0}, 0},
		"not even itself":  {nil, 3, nil, 0},
		"launcher's first": {map[string]string{"RANK": "4", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"}, 4, []int{4, 5, 6, 7}, 0},
	} {
		if got := Turn(func(k string) string { return x.env[k] }, x.rank, x.there); got != x.want {
			t.Errorf("%s: %d, expected %d", what, got, x.want)
		}
	}
}
