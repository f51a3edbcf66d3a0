package transporttest_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
)

// servePlugin makes this test program the plugin.
const servePlugin = "TRANSPORTTEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(servePlugin) != "" {
		plugins.Serve(func(struct{}) (framework.Transport, error) { return loopback.New(), nil })
		return
	}
	// Ranks wait in C, and each keeps one of Go's processors until the runtime notices, for up to 10 ms. With one for
	// each rank nobody waits for that: ranks of a real job have processes of their own.
	runtime.GOMAXPROCS(max(16, runtime.NumCPU()))
	os.Exit(m.Run())
}

// The suite at its three distances.

func TestEmbedded(t *testing.T) {
	transporttest.Run(t, func(testing.TB) *transporttest.Side { return transporttest.Embedded(loopback.New()) })
}

func TestWire(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(plugintest.Wrap(t, loopback.New()))
	})
}

func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		c, err := plugins.Open(t.Context(), plugins.Spec{Name: "loopback", Path: self, Env: []string{servePlugin + "=1"}})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.External(c)
	})
}
