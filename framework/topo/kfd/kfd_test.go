package kfd_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/kfd"
)

var update = flag.Bool("update", false, "rewrite the expected tables in testdata")

func machine(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".machine")
	if err != nil {
		t.Fatal(err)
	}
	return topo.Replay(string(text)).(fstest.MapFS)
}

func find(t *testing.T, root fs.FS) []topo.GPU {
	t.Helper()
	gpus, err := kfd.GPUs(root)()
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

func TestTables(t *testing.T) {
	for _, name := range []string{"mi300x", "mi250", "mi300a", "cpx"} {
		root := machine(t, name)
		h, err := topo.Read(root, kfd.GPUs(root))
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := h.Print(&got); err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + name + ".table"
		if *update {
			if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.Bytes(), want)
		}
	}
}

// The links between every two GPUs, and who reaches whom.
func TestLinks(t *testing.T) {
	for _, c := range []struct {
		name                 string
		devices, pairs, most int // pairs that links join, and the most links of one
		xcds                 int
		partition            string
	}{
		{"mi300x", 8, 28, 1, 8, "SPX NPS1"},
		{"mi250", 8, 12, 4, 1, ""},
		{"mi300a", 4, 6, 2, 6, "SPX"},
		{"cpx", 8, 28, 1, 1, "CPX NPS4"},
	} {
		gpus := find(t, machine(t, c.name))
		pairs, most := 0, 0
		for i, a := range gpus {
			if a.XCDs != c.xcds || a.Partition != c.partition || a.Hive == "" || a.Hive != gpus[0].Hive || a.Device != (framework.Device{Type: "hip", Index: i}) {
				t.Errorf("%s: %+v", c.name, a)
			}
			for _, b := range gpus[i+1:] {
				there, _ := a.NVLinks(b)
				back, _ := b.NVLinks(a)
				if most = max(most, there); there > 0 {
					pairs++
				}
				if there != back {
					t.Errorf("%s: %d links from %s to %s, %d back", c.name, there, a.PCI, b.PCI, back)
				}
				if access, known := a.AccessTo(b); !known || !access.Granted() {
					t.Errorf("%s: %s reaches %s: %+v", c.name, a.PCI, b.PCI, access)
				}
			}
		}
		if len(gpus) != c.devices || pairs != c.pairs || most != c.most {
			t.Errorf("%s: %d devices, %d pairs with links, at most %d: expected %d, %d, %d", c.name, len(gpus), pairs, most, c.devices, c.pairs, c.most)
		}
	}
}

// A container has some of the GPUs that the driver lists.
func TestContainers(t *testing.T) {
	root := machine(t, "mi300x")
	delete(root, "dev/dri/renderD129")
	delete(root, "dev/dri/renderD130")
	root["sys/class/kfd/kfd/topology/nodes/5/gpu_id"] = &fstest.MapFile{}
	gpus := find(t, root)
	if len(gpus) != 5 || gpus[1].PCI != "0000:85:00.0" || gpus[1].Device.Index != 1 || len(gpus[0].Links) != 4 {
		t.Errorf("%d GPUs: %+v", len(gpus), gpus)
	}

	if gpus := find(t, fstest.MapFS{}); gpus != nil {
		t.Errorf("without the driver: %+v", gpus)
	}
	for i := range 8 {
		delete(root, "dev/dri/renderD"+string(rune('1'))+string(rune('2'+(8+i)/10))+string(rune('0'+(8+i)%10)))
	}
	_, err := kfd.GPUs(root)()
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "node 2 has no /dev/dri/renderD128 here") || !strings.Contains(err.Error(), "node 5 belongs to another container") {
		t.Errorf("no render nodes: %v", err)
	}
	delete(root, "dev/kfd")
	if _, err := kfd.GPUs(root)(); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "/dev/kfd") {
		t.Errorf("no /dev/kfd: %v", err)
	}
}

func TestVisible(t *testing.T) {
	gpus := find(t, machine(t, "mi300x"))
	parts := find(t, machine(t, "cpx"))
	for _, c := range []struct {
		of      []topo.GPU
		env     string
		want    string
		reasons int
	}{
		{gpus, "", "01234567", 0},
		{gpus, "ROCR_VISIBLE_DEVICES=2,3,5", "235", 1},
		{gpus, "ROCR_VISIBLE_DEVICES=2,3,5 HIP_VISIBLE_DEVICES=2,0", "52", 2},
		{gpus, "ROCR_VISIBLE_DEVICES=2,3,5 CUDA_VISIBLE_DEVICES=1", "3", 2},
		{gpus, "HIP_VISIBLE_DEVICES= CUDA_VISIBLE_DEVICES=1", "1", 1},
		{gpus, "HIP_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=1", "0", 1},
		{gpus, "GPU_DEVICE_ORDINAL=7,6", "76", 1},
		{gpus, "HIP_VISIBLE_DEVICES=4 GPU_DEVICE_ORDINAL=7,6", "4", 1},
		{gpus, "ROCR_VISIBLE_DEVICES=GPU-1a2b3c4d5e6f0003", "3", 1},
		{gpus, "ROCR_VISIBLE_DEVICES=", "", 1},
		{gpus, "HIP_VISIBLE_DEVICES=1,-1,2", "1", 1},
		{gpus, "HIP_VISIBLE_DEVICES=1,9,2", "1", 1},
		{gpus, "HIP_VISIBLE_DEVICES=1,1,2", "12", 1},
		{parts, "ROCR_VISIBLE_DEVICES=6,7", "67", 1},
		{parts, "ROCR_VISIBLE_DEVICES=GPU-1a2b3c4d5e6f0000", "", 1}, // all parts of a card have its identity
	} {
		env := map[string]string{}
		for word := range strings.FieldsSeq(c.env) {
			name, value, _ := strings.Cut(word, "=")
			env[name] = value
		}
		visible, reasons := kfd.Visible(c.of, func(name string) (string, bool) { v, set := env[name]; return v, set })
		got := ""
		for _, g := range visible {
			got += string(rune('0' + g.Device.Index))
		}
		if got != c.want || len(reasons) != c.reasons {
			t.Errorf("%q: %s, hidden by %q: expected %s, %d reasons", c.env, got, reasons, c.want, c.reasons)
		}
	}
}
