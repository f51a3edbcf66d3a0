package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// Machine code lies in the folders of plugins, and the configuration says whether it is used.
func TestMachineCodeIsChosenByConfiguration(t *testing.T) {
	const text = ".version 7.8\n.target sm_90\n.visible .entry k(\n.param .u64 p\n)\n{\nret;\n}\n"
	sum := sha256.Sum256([]byte(text))
	image := hex.EncodeToString(sum[:])
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	images, dir := t.TempDir(), t.TempDir()
	t.Setenv(emulated.EnvImages, images)
	emulated.Stand(t, images, []byte(text), `extern "C" void k(const void*, const void*) {}`)
	emulated.MachineCodeOf(t, images, dir, "sm_90", image, []byte(text))
	for name, c := range map[string]struct {
		code, configured, builtIn string
		used                      bool
	}{
		"a configured folder":       {"auto", dir, "", true},
		"the folder of the program": {"auto", "", dir, true},
		"neither":                   {"auto", t.TempDir(), "", false},
		"PTX":                       {"ptx", dir, dir, false},
	} {
		cfg := config.Default()
		cfg.GPUCode = c.code
		if c.configured != "" {
			cfg.Plugins.Dirs = []string{c.configured}
		}
		d, err := openDevice(framework.Device{Type: "cuda"}, &cfg, c.builtIn, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		m, err := d.(device.Assembled).LoadAssembled(image)
		if err != nil || (m != nil) != c.used {
			t.Errorf("%s: %v, %v: expected it to be used: %v", name, m, err, c.used)
		}
		if m != nil {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
