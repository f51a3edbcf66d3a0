package setup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

// acme makes a back end of two devices, and returns its path and checksum.
func acme(t *testing.T) (path, sum string) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("needs a C compiler")
	}
	const native = "../../framework/device/native/"
	path = filepath.Join(t.TempDir(), "libacme.so")
	if text, err := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-fPIC", "-shared", "-I"+native+"include", "-o", path, native+"testdata/table.c", "-Wl,--no-as-needed", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, text)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(data)
	return path, hex.EncodeToString(s[:])
}

// Names, auto and transports of a device are data of the configuration.
func TestConfiguredDevices(t *testing.T) {
	withoutDrivers(t)
	path, sum := acme(t)
	cfg := config.Default()
	cfg.Devices["acme"] = config.DeviceBackend{Path: path, SHA256: sum, Transports: []string{"acmelink", "tcp"}}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for name, want := range map[string]string{"acme": "acme:1", "auto": "acme:1", "acme:0": "acme:0", "host": "host", "": "host"} {
		cfg.Device = name
		vars := map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
		d, err := chooseDevice(&cfg, "", environment(vars), logger)
		if err != nil || d.String() != want {
			t.Errorf("device %q: %v, %v: expected %s", name, d, err, want)
		}
	}
	if got := strings.Join(cfg.TransportsOn("acme"), " "); got != "acmelink tcp" {
		t.Errorf("transports on acme: %s", got)
	}
	if text := log.String(); !strings.Contains(text, "loaded into this process") || !strings.Contains(text, "libm.so") || !strings.Contains(text, "pinned=true") {
		t.Errorf("log %q: expected that, and with which libraries, the back end was loaded", text)
	}
	if _, err := openDevice(framework.Device{Type: "acme"}, &cfg, "", logger); err == nil || !strings.Contains(err.Error(), "ACME_ERROR_TIRED") {
		t.Errorf("open: %v: expected the words of the back end", err)
	}
	if _, err := openDevice(framework.Device{Type: "acne"}, &cfg, "", logger); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), `did you mean "acme"`) {
		t.Errorf("another type: %v: expected the nearest name", err)
	}
}

// A mistake in what was configured is no reason to run on another device, also where the choice is left open.
func TestBackendsThatAreRefused(t *testing.T) {
	withoutDrivers(t)
	path, _ := acme(t)
	for _, c := range []struct{ name, path, sum, want string }{
		{"acme", path, strings.Repeat("ab", 32), "has sha256"},
		{"other", path, "", "write devices.acme"},
		{"acme", "libacme.so", "", "absolute path"},
	} {
		cfg := config.Default()
		cfg.Devices[c.name] = config.DeviceBackend{Path: c.path, SHA256: c.sum}
		for _, device := range []string{"auto", c.name} {
			cfg.Device = device
			_, err := chooseDevice(&cfg, "", environment(nil), slog.New(slog.DiscardHandler))
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "devices."+c.name) {
				t.Errorf("device %s of %+v: %v: expected ErrInvalid with %q", device, c, err, c.want)
			}
		}
	}
}
