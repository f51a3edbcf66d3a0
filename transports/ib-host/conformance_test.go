package ibhost_test

import (
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/ib-host"
)

// roleKey makes this test program the plugin.
const roleKey = "IB_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleKey) == "plugin" {
		plugins.Serve(ibhost.New)
		return
	}
	os.Exit(m.Run())
}

func embedded(t testing.TB) framework.Transport {
	t.Helper()
	tr, err := ibhost.New(ibhost.Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// needsDevice skips where there is no RDMA. scripts/rdma-test.sh runs these tests where
// there is.
func needsDevice(t *testing.T) {
	t.Helper()
	live, err := embedded(t).(framework.Prober).Probe(t.Context(), framework.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if !live.Available {
		if os.Getenv("RDMA_REQUIRED") != "" {
			t.Fatal(live.Reason)
		}
		t.Skipf("no RDMA device: %s", live.Reason)
	}
}

// The suite at its three distances.

func TestConformanceEmbedded(t *testing.T) {
	needsDevice(t)
	transporttest.Run(t, func(t testing.TB) *transporttest.Side { return transporttest.Embedded(embedded(t)) })
}

func TestConformanceOverTheWire(t *testing.T) {
	needsDevice(t)
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(plugintest.Wrap(t, embedded(t)))
	})
}

func TestConformanceAsPlugin(t *testing.T) {
	needsDevice(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		c, err := plugins.Open(t.Context(), plugins.Spec{Name: ibhost.Name, Path: self, Env: []string{roleKey + "=plugin"}})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.External(c)
	})
}
