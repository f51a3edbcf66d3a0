package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
)

func machine(t *testing.T, name string) fs.FS {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".machine"))
	if err != nil {
		t.Fatal(err)
	}
	return Replay(string(text))
}

// gpus pretends to be a driver that knows two accelerators of two-sockets.
func gpus() ([]GPU, error) {
	return []GPU{
		{Device: framework.Device{Type: "cuda", Index: 0}, Name: "NVIDIA H100", PCI: "0000:1D:00.0"},
		{Device: framework.Device{Type: "cuda", Index: 1}, Name: "NVIDIA H100", PCI: "0000:9d:00.0"},
	}, nil
}

func TestTwoSockets(t *testing.T) {
	h, err := Read(machine(t, "two-sockets"), gpus)
	if err != nil {
		t.Fatal(err)
	}
	if h.Sockets != 2 || h.Cores != 4 {
		t.Errorf("%d sockets and %d cores, want 2 and 4: threads are not cores", h.Sockets, h.Cores)
	}
	if len(h.Nodes) != 2 || !reflect.DeepEqual(h.Nodes[1].CPUs, []int{2, 3, 6, 7}) || !reflect.DeepEqual(h.Nodes[1].Distances, []int{21, 10}) {
		t.Errorf("nodes %+v", h.Nodes)
	}
	names := []string{}
	for _, n := range h.NICs {
		names = append(names, n.Name)
	}
	if want := []string{"eno1", "mlx5_0", "mlx5_1", "mlx5_10"}; !reflect.DeepEqual(names, want) {
		t.Errorf("adapters %q, want %q: interfaces of RDMA devices, bridges and lo are none of their own", names, want)
	}
}

func TestFacts(t *testing.T) {
	h, err := Read(machine(t, "two-sockets"), gpus)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		place Place
		numa  int
		want  []framework.NIC
	}{
		{"first accelerator", h.At(framework.Device{Type: "cuda", Index: 0}, nil), 0, []framework.NIC{
			{Name: "mlx5_0", Distance: PIX, NUMA: 0}, {Name: "eno1", Distance: NODE, NUMA: 0},
			{Name: "mlx5_1", Distance: SYS, NUMA: 1}, {Name: "mlx5_10", Distance: PXB, NUMA: 0}}},
		{"second accelerator", h.At(framework.Device{Type: "cuda", Index: 1}, nil), 1, []framework.NIC{
			{Name: "mlx5_1", Distance: PHB, NUMA: 1}, {Name: "eno1", Distance: SYS, NUMA: 0},
			{Name: "mlx5_0", Distance: SYS, NUMA: 0}, {Name: "mlx5_10", Distance: SYS, NUMA: 0}}},
		{"processors of node 1", h.At(framework.Host, []int{2, 7}), 1, []framework.NIC{
			{Name: "mlx5_1", Distance: NODE, NUMA: 1}, {Name: "eno1", Distance: SYS, NUMA: 0},
			{Name: "mlx5_0", Distance: SYS, NUMA: 0}, {Name: "mlx5_10", Distance: SYS, NUMA: 0}}},
		{"processors of both nodes", h.At(framework.Host, []int{0, 2}), -1, []framework.NIC{
			{Name: "eno1", Distance: SYS, NUMA: 0}, {Name: "mlx5_0", Distance: SYS, NUMA: 0},
			{Name: "mlx5_1", Distance: SYS, NUMA: 1}, {Name: "mlx5_10", Distance: SYS, NUMA: 0}}},
	} {
		f := h.Facts(c.place)
		if f.Host != h.ID || f.NUMA != c.numa || !reflect.DeepEqual(f.NICs, c.want) {
			t.Errorf("%s: host %q, node %d, adapters\n%v, want node %d,\n%v", c.name, f.Host, f.NUMA, f.NICs, c.numa, c.want)
		}
	}
}

// This machine is read without complaint, and a recording of it reads the same.
func TestRecordThisMachine(t *testing.T) {
	h, err := System()
	if err != nil {
		t.Fatal(err)
	}
	if h.ID == "" || h.Sockets < 1 || h.Cores < 1 || len(h.Nodes) < 1 || h.Nodes[0].Bytes == 0 {
		t.Errorf("this machine: %+v", h)
	}
	var recording bytes.Buffer
	if err := Record(os.DirFS("/"), &recording); err != nil {
		t.Fatal(err)
	}
	again, err := Read(Replay(recording.String()))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(recording.String(), h.ID) {
		t.Error("the recording has the boot id of this machine")
	}
	again.ID, again.Name = h.ID, h.Name
	if !reflect.DeepEqual(h, again) {
		t.Errorf("the machine is %+v\nits recording %+v\n%s", h, again, recording.String())
	}
}

func TestJSON(t *testing.T) {
	h, err := Read(machine(t, "two-sockets"), gpus)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := h.PrintJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Host
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if len(back.NICs) != len(h.NICs) || back.NICs[1].PCI != h.NICs[1].PCI || back.Nodes[1].Bytes != h.Nodes[1].Bytes {
		t.Errorf("JSON reads back as %+v", back)
	}
}

func TestNoSystem(t *testing.T) {
	if _, err := Read(fstest.MapFS{}); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("a machine without /sys: %v, want ErrUnavailable", err)
	}
	h, err := Read(fstest.MapFS{"sys": &fstest.MapFile{Mode: fs.ModeDir}})
	if err != nil || len(h.Nodes) != 1 {
		t.Fatalf("an empty /sys: %+v, %v: want one memory node", h, err)
	}
	if err := h.Print(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
	broken := func() ([]GPU, error) { return nil, framework.ErrPlugin }
	if _, err := Read(fstest.MapFS{"sys": &fstest.MapFile{Mode: fs.ModeDir}}, broken); !errors.Is(err, framework.ErrPlugin) {
		t.Errorf("a finder's error: %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string][]int{
		"": {}, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, "3-1": {}, "x,2": {2}, "-1": {}, "0-": {}, " 4 , 5-6": {4, 5, 6},
	} {
		if got := parseList(text); !reflect.DeepEqual(got, want) {
			t.Errorf("parseList(%q) = %v, want %v", text, got, want)
		}
	}
	if n := len(parseList("0-999999999999")); n != maxListed {
		t.Errorf("an enormous list has %d entries", n)
	}
	for text, want := range map[string]int{
		"100 Gb/sec (4X EDR)": 100000, "2.5 Gb/sec (1X SDR)": 2500, "": 0, "fast": 0, "-1 Gb/sec": 0, "1e99 Gb/sec": 0, "10 Mb/sec": 0,
	} {
		if got := rate(text); got != want {
			t.Errorf("rate(%q) = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]bool{"0000:3b:00.0": true, "10000:e1:00.1": true, "0000:3b:00": false, "virtio2": false, "zzzz:00:00.0": false, "": false} {
		if isPCI(text) != want {
			t.Errorf("isPCI(%q) = %v", text, !want)
		}
	}
}

// The machine is read and printed for any content of the files of /sys.
func FuzzContents(f *testing.F) {
	text, err := os.ReadFile("testdata/two-sockets.machine")
	if err != nil {
		f.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	f.Add(uint(4), "0-3,8")
	f.Add(uint(20), "Node 0 MemTotal: 99999999999999999999 kB")
	f.Add(uint(33), "-1")
	f.Fuzz(func(t *testing.T, n uint, content string) {
		changed := append([]string(nil), lines...)
		name, _, ok := strings.Cut(changed[n%uint(len(lines))], " = ")
		if !ok {
			return
		}
		changed[n%uint(len(lines))] = name + " = " + content
		h, err := Read(Replay(strings.Join(changed, "\n")), gpus)
		if err != nil {
			return
		}
		h.Facts(h.At(framework.Host, []int{0}))
		if err := h.Print(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	})
}
