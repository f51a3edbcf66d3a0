package shm_test

import (
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// roleKey makes this test program the plugin, or a rank of a test with processes.
const roleKey = "SHM_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleKey); role {
	case "":
		os.Exit(m.Run())
	case "plugin":
		plugins.Serve(shm.New)
	default:
		os.Exit(child(role))
	}
}

func embedded(t testing.TB) framework.Transport {
	t.Helper()
	tr, err := shm.New(shm.Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// The suite at its three distances.

func TestConformanceEmbedded(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side { return transporttest.Embedded(embedded(t)) })
}

func TestConformanceOverTheWire(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(plugintest.Wrap(t, embedded(t)))
	})
}

func TestConformanceAsPlugin(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		c, err := plugins.Open(t.Context(), plugins.Spec{Name: shm.Name, Path: self, Env: []string{roleKey + "=plugin"}})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.External(c)
	})
}
