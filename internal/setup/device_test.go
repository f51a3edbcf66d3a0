package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// environment answers like os.Getenv.
func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestTheConfigurationOverridesTheProgram(t *testing.T) {
	for _, c := range []struct{ configured, wanted, expected string }{
		{"", "", "host"}, {"", "host", "host"}, {"host", "cuda:3", "host"}, {"cuda:1", "host", "cuda:1"}, {"", "cuda:2", "cuda:2"},
	} {
		d, err := chooseDevice(&config.Config{Device: c.configured}, c.wanted, environment(nil), slog.New(slog.DiscardHandler))
		if err != nil || d.String() != c.expected {
			t.Errorf("configured %q, wanted %q: %v, %v; expected %s", c.configured, c.wanted, d, err, c.expected)
		}
	}
}

// withoutDrivers hides the libraries of GPUs, also those that other tests of this process have loaded: the loader finds these by name.
func withoutDrivers(t *testing.T) {
	t.Helper()
	t.Setenv(cuda.EnvLibrary, "/does/not/exist/libcuda.so.1")
	t.Setenv(hip.EnvLibrary, "/does/not/exist/libamdhip64.so.7")
}

func TestDeviceWithoutADriver(t *testing.T) {
	withoutDrivers(t)
	if _, err := chooseDevice(&config.Config{Device: ""}, "cuda", environment(nil), slog.New(slog.DiscardHandler)); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("%v: expected that the driver's library is unavailable", err)
	}
	var log bytes.Buffer
	d, err := chooseDevice(&config.Config{Device: "auto"}, "", environment(nil), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil || d != framework.Host {
		t.Errorf("auto: %v, %v; expected the host", d, err)
	}
	if !strings.Contains(log.String(), "libcuda.so.1") {
		t.Errorf("log %q: expected the reason", log.String())
	}
}

// A device that does not open is nil, so that a job that gives up closes nothing.
func TestGPUThatDoesNotOpen(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, "/does/not/exist/libcuda.so.1")
	for _, hosted := range []bool{false, true} {
		cfg := config.Default()
		if hosted {
			cfg.GPUMemory = "host"
		}
		d, err := openDevice(framework.Device{Type: "cuda", Index: 7}, &cfg, "", slog.New(slog.DiscardHandler))
		if !errors.Is(err, framework.ErrUnavailable) || d != nil {
			t.Errorf("hosted %v: %v, %v: expected no device, and that it is unavailable", hosted, d, err)
		}
	}
}

// chosenEnv makes the test binary a process that sees some GPUs: its value is how many,
// and the driver's library.
const chosenEnv = "CHOOSE_DEVICE_TEST"

// A rank takes the GPU of its number on its host, among those that it can see. Where
// there are fewer than ranks they take turns, with a warning; a rank that sees a single one was
// given it, and gets no warning. A driver reads once what is visible, so each case has a
// process of its own.
func TestGPUOfALocalRank(t *testing.T) {
	if visible, library, inside := strings.Cut(os.Getenv(chosenEnv), " "); inside {
		n, err := strconv.Atoi(visible)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(cuda.EnvLibrary, library)
		chosen(t, n)
		return
	}
	library := emulated.Build(t)
	for visible, devices := range map[int]string{4: "0,1,2,3", 3: "2,0,3", 2: "3,1", 1: "2", 0: "-1"} {
		t.Run(fmt.Sprint(visible, " GPUs are visible"), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestGPUOfALocalRank$", "-test.v")
			c.Env = append(os.Environ(), fmt.Sprint(chosenEnv, "=", visible, " ", library),
				emulated.EnvGPUs+"=4", "CUDA_VISIBLE_DEVICES="+devices)
			if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestGPUOfALocalRank")) {
				t.Errorf("CUDA_VISIBLE_DEVICES=%s: %v: %s", devices, err, out)
			}
		})
	}
}

// chosen looks at what ranks get where n GPUs are visible.
func chosen(t *testing.T, n int) {
	t.Helper()
	choose := func(wanted, local string) (string, string, error) {
		vars := map[string]string{}
		if local != "" {
			vars = map[string]string{"RANK": local, "WORLD_SIZE": "16", "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": "16"}
		}
		var log bytes.Buffer
		d, err := chooseDevice(&config.Config{Device: ""}, wanted, environment(vars), slog.New(slog.NewTextHandler(&log, nil)))
		return d.String(), log.String(), err
	}
	if n == 0 {
		if _, _, err := choose("cuda", "0"); !errors.Is(err, framework.ErrUnavailable) {
			t.Errorf("no GPU is visible: %v: expected that the device is unavailable", err)
		}
		if d, _, err := choose("auto", "0"); err != nil || d != "host" {
			t.Errorf("auto, and no GPU is visible: %v, %v: expected the host", d, err)
		}
		return
	}
	for local := range 9 {
		for _, wanted := range []string{"cuda", "auto"} {
			d, log, err := choose(wanted, strconv.Itoa(local))
			if want := fmt.Sprint("cuda:", local%n); err != nil || d != want {
				t.Errorf("%s, local rank %d: %v, %v: expected %s", wanted, local, d, err, want)
			}
			if known, want := strings.Contains(log, "ranks share devices"), n > 1 && local >= n; known != want {
				t.Errorf("%s, local rank %d of %d visible GPUs: log %q: expected a warning: %v", wanted, local, n, log, want)
			}
		}
	}
	for size, want := range map[string]bool{"4": n > 1, "1": false} {
		var log bytes.Buffer
		d, err := chooseDevice(&config.Config{Device: ""}, "cuda", environment(map[string]string{"RANK": "0", "WORLD_SIZE": size}), slog.New(slog.NewTextHandler(&log, nil)))
		if known := strings.Contains(log.String(), "set LOCAL_RANK"); err != nil || d.String() != "cuda:0" || known != want {
			t.Errorf("a rank of %s without a local rank, %d visible GPUs: %v, %v, log %q: expected a warning: %v", size, n, d, err, log.String(), want)
		}
	}
	if d, _, err := choose("cuda", ""); err != nil || d != "cuda:0" {
		t.Errorf("no local rank: %v, %v: expected cuda:0", d, err)
	}
	if _, _, err := choose("cuda", "one"); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("local rank one: %v: expected that it is invalid", err)
	}
	if d, _, err := choose("cuda:7", "1"); err != nil || d != "cuda:7" {
		t.Errorf("a GPU that is named: %v, %v: expected that one, whatever the rank", d, err)
	}
}

// The configuration says whether memory of a GPU is made for other hosts of one NVLink
// network as well. The emulated driver is one that refuses to.
func TestFabricMemoryIsAskedForByConfiguration(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	for kind, asked := range map[string]bool{"device": false, "fabric": true} {
		cfg := config.Default()
		cfg.GPUMemory = kind
		d, err := openDevice(framework.Device{Type: "cuda"}, &cfg, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		m, err := d.Alloc(4096)
		if err != nil {
			t.Fatalf("%s: %v: expected memory without, where the driver refuses", kind, err)
		}
		defer m.Close()
		if refused := d.(*cuda.Device).FabricRefused(); refused != asked {
			t.Errorf("gpu_memory %s: refused by the driver: %v, expected %v", kind, refused, asked)
		}
	}
}

// Transports get, as a fact, where the configuration has put the memory of a GPU.
func TestHostMemoryIsAFact(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, emulated.Build(t))
	for kind, want := range map[string]string{"device": "", "host": "host"} {
		cfg := config.Default()
		cfg.GPUMemory = kind
		d, err := openDevice(framework.Device{Type: "cuda"}, &cfg, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if facts := Facts(os.DirFS("/"), d, "h", 0, slog.New(slog.DiscardHandler)); facts.Other[topo.FactMemory] != want || facts.Other[topo.FactPCI] == "" {
			t.Errorf("gpu_memory %s: facts %v, expected memory %q beside the rest", kind, facts.Other, want)
		}
	}
}

// The configuration says whether the host stores into memory of a GPU by GDRCopy.
func TestGDRCopyIsSwitchedOffByConfiguration(t *testing.T) {
	library := emulated.Build(t)
	t.Setenv(cuda.EnvLibrary, library)
	t.Setenv(cuda.EnvGDRCopy, emulated.GDRCopy(library))
	for _, on := range []bool{true, false} {
		cfg := config.Default()
		if !cfg.GDRCopy {
			t.Error("it is off by default")
		}
		cfg.GDRCopy = on
		d, err := openDevice(framework.Device{Type: "cuda"}, &cfg, "", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		m, err := d.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		v, err := d.(device.HostMapper).MapForHost(m)
		if on && err != nil || !on && (!errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "switched off")) {
			t.Errorf("gdrcopy: %v: %v", on, err)
		}
		if err == nil {
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
