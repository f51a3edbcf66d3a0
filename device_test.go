package mscclpp

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/gpu/cuda"
)

// environment answers like os.Getenv.
func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestTheConfigurationOverridesTheProgram(t *testing.T) {
	for _, c := range []struct{ configured, wanted, expected string }{
		{"", "", "host"}, {"", "host", "host"}, {"host", "cuda:3", "host"}, {"cuda:1", "host", "cuda:1"}, {"", "cuda:2", "cuda:2"},
	} {
		d, err := chooseDevice(c.configured, c.wanted, environment(nil), slog.New(slog.DiscardHandler))
		if err != nil || d.String() != c.expected {
			t.Errorf("configured %q, wanted %q: %v, %v; expected %s", c.configured, c.wanted, d, err, c.expected)
		}
	}
}

func TestDeviceWithoutADriver(t *testing.T) {
	t.Setenv(cuda.EnvLibrary, "/does/not/exist/libcuda.so.1")
	if _, err := chooseDevice("", "cuda", environment(nil), slog.New(slog.DiscardHandler)); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("%v: expected that the driver's library is unavailable", err)
	}
	var log bytes.Buffer
	d, err := chooseDevice("auto", "", environment(nil), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil || d != framework.Host {
		t.Errorf("auto: %v, %v; expected the host", d, err)
	}
	if !strings.Contains(log.String(), "libcuda.so.1") {
		t.Errorf("log %q: expected the reason", log.String())
	}
}
