package emulated_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/nvml"
)

const roleKey = "EMULATED_TEST_ROLE"

// TestMain lists GPUs in a process whose loader finds the libraries by their names:
// its path is read when a process starts.
func TestMain(m *testing.M) {
	if os.Getenv(roleKey) == "" {
		os.Exit(m.Run())
	}
	if err := list(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// listing is the answer of both libraries about the machine.
type listing struct {
	GPUs    []topo.GPU
	Visible []string // UUIDs by CUDA's numbers
}

func list() error {
	var l listing
	var err error
	if l.GPUs, err = nvml.Find(); err != nil {
		return err
	}
	n, err := cuda.Count()
	if err != nil {
		return err
	}
	for i := range n {
		d, err := cuda.Open(i)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("%x", d.UUID())
		l.Visible = append(l.Visible, fmt.Sprintf("GPU-%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:]))
		if err := d.Close(); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(l)
}

func listed(t *testing.T, env ...string) listing {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(append(os.Environ(), roleKey+"=list", cuda.EnvLibrary+"=", "LD_LIBRARY_PATH="+filepath.Dir(emulated.Build(t))), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", err, cmd.Stderr)
	}
	var l listing
	if err := json.Unmarshal(out, &l); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return l
}

// Both libraries report the same GPUs, by the same names.
func TestManagement(t *testing.T) {
	l := listed(t, "CUDA_VISIBLE_DEVICES=2,0", emulated.EnvGPUs+"=3", emulated.EnvMemory+"=1048576", emulated.EnvWithout+"=")
	if len(l.GPUs) != 3 || len(l.Visible) != 2 {
		t.Fatalf("%d GPUs, %d of them visible: expected 3 and 2", len(l.GPUs), len(l.Visible))
	}
	if l.Visible[0] != l.GPUs[2].UUID || l.Visible[1] != l.GPUs[0].UUID {
		t.Errorf("visible are %v: expected %s and %s", l.Visible, l.GPUs[2].UUID, l.GPUs[0].UUID)
	}
	g := l.GPUs[1]
	if g.Name != "Emulated GPU" || g.Arch != "sm_90" || g.PCI != "0000:e1:00.0" || g.Bytes != 1<<20 {
		t.Errorf("%+v: expected an Emulated GPU, sm_90, at 0000:e1:00.0, of 1048576 bytes", g)
	}
	if n, through := g.NVLinks(l.GPUs[0]); n != 18 || through != topo.Switch {
		t.Errorf("%d links through %q: expected 18 through a switch", n, through)
	}
	if a, ok := g.AccessTo(l.GPUs[2]); !ok || !a.Granted() {
		t.Errorf("access %+v, %v: expected granted", a, ok)
	}
}

func TestManagementWithout(t *testing.T) {
	l := listed(t, emulated.EnvWithout+"=peer", emulated.EnvGPUs+"=2", "CUDA_VISIBLE_DEVICES=0")
	if a, ok := l.GPUs[0].AccessTo(l.GPUs[1]); !ok || a.Granted() {
		t.Errorf("access %+v, %v: expected refused", a, ok)
	}
	if n, _ := l.GPUs[0].NVLinks(l.GPUs[1]); n != 0 {
		t.Errorf("%d links: expected none", n)
	}
	l = listed(t, emulated.EnvWithout+"=nvlink", emulated.EnvGPUs+"=2", "CUDA_VISIBLE_DEVICES=0")
	a, _ := l.GPUs[0].AccessTo(l.GPUs[1])
	if n, _ := l.GPUs[0].NVLinks(l.GPUs[1]); n != 0 || !a.Granted() {
		t.Errorf("%d links, access %+v: expected none, granted", n, a)
	}
}

func TestManagementSymbols(t *testing.T) {
	for _, name := range exports(t, filepath.Join(filepath.Dir(emulated.Build(t)), "libnvidia-ml.so.1")) {
		if !strings.HasPrefix(name, "nvml") {
			t.Errorf("the library has %s, which is no function of NVML", name)
		}
	}
}
