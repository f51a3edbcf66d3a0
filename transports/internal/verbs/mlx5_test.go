package verbs

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// fakeMLX5 returns the path of a libmlx5 that hands registrations to a fake libibverbs.
func fakeMLX5(t *testing.T, verbs string, macros ...string) string {
	t.Helper()
	t.Setenv("FAKE_VERBS_LIBRARY", verbs)
	path := filepath.Join(t.TempDir(), "fake-mlx5.so")
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, "testdata/fakemlx5.c"}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	if out, err := exec.CommandContext(t.Context(), compiler(), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler(), err, out)
	}
	return path
}

// Memory of a GPU is registered over the adapter's direct path where there is one, and
// signals are atomics of the adapter on that path, too. Everywhere else it is registered
// as before, and nothing fails.
func TestDataDirect(t *testing.T) {
	m, err := memfd.New("test", 4096, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	seg := framework.Segment{Device: framework.Device{Type: "cuda"}, Bytes: 2048, Offset: 1024, Shares: []framework.Share{{Kind: framework.ShareDMABuf, FD: m.File()}}}
	const direct, plain = "mlx5 register flags=1", "register dma-buf access="
	for name, c := range map[string]struct {
		mode   Mode
		macros []string
		change func(*Config)
		asked  bool   // for direct access
		fact   string // of the probe
	}{
		"direct":        {mode: Atomic, asked: true, fact: "/sys/devices/pci0000:00/fake"},
		"refused":       {mode: Atomic, macros: []string{"REFUSES"}, asked: true, fact: "/sys/devices/pci0000:00/fake"},
		"no path":       {mode: Atomic, macros: []string{"NO_PATH"}, fact: "none"},
		"other vendor":  {mode: Atomic, macros: []string{"OTHER_VENDOR"}, fact: "none"},
		"old library":   {mode: Atomic, macros: []string{"OLD"}, fact: "none"},
		"no library":    {mode: Atomic, change: func(c *Config) { c.MLX5Library = "/nonexistent/libmlx5.so" }, fact: "none"},
		"switched off":  {mode: Atomic, change: func(c *Config) { c.DataDirect = false }, fact: "none"},
		"by immediates": {mode: Immediate, fact: "none"}, // the count comes by another path than the data
	} {
		t.Run(name, func(t *testing.T) {
			asked := recorded(t)
			verbs := fake(t, "DMABUF")
			mlx5 := fakeMLX5(t, verbs, c.macros...)
			tr := transportOn(t, verbs, c.mode, func(o *Config) {
				o.MLX5Library = mlx5
				if c.change != nil {
					c.change(o)
				}
			})
			reg, err := tr.Register(t.Context(), seg)
			if err != nil {
				t.Fatal(err)
			}
			log := asked()
			if slices.Contains(log, direct) != c.asked {
				t.Errorf("%q: expected direct access to be asked for: %v", log, c.asked)
			}
			if n := len(slices.DeleteFunc(slices.Clone(log), func(line string) bool { return !strings.HasPrefix(line, plain) })); n != 1 {
				t.Errorf("%q: %d registrations, expected 1", log, n)
			}
			live, err := tr.Probe(t.Context(), framework.Facts{})
			if err != nil || live.Facts["data_direct"] != c.fact {
				t.Errorf("probe says data_direct %q, %v: expected %q", live.Facts["data_direct"], err, c.fact)
			}
			if err := tr.Close(t.Context(), reg.ID); err != nil {
				t.Error(err)
			}
			// Memory of the host goes the usual way.
			if _, err := tr.Register(t.Context(), segment(m)); err != nil || slices.Contains(asked()[len(log):], direct) {
				t.Errorf("memory of the host: %v, %q", err, asked()[len(log):])
			}
		})
	}
}
