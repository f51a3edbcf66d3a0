package tcp_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

// roleKey makes this test program the plugin.
const roleKey = "TCP_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleKey) == "plugin" {
		plugins.Serve(tcp.New)
		return
	}
	observed, err := observe.Open(observe.Facts{Job: fmt.Sprint("tcp-", os.Getpid()), Size: 1, Local: -1})
	if err != nil {
		panic(err)
	}
	os.Setenv(observe.EnvRegion, observed.Region())
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

func embedded(t testing.TB, c tcp.Config) framework.Transport {
	t.Helper()
	tr, err := tcp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// asPlugin opens this program as the plugin.
func asPlugin(t testing.TB, options map[string]any) *plugins.Client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := plugins.Open(t.Context(), plugins.Spec{Name: tcp.Name, Path: self, Env: []string{roleKey + "=plugin"}, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The suite at its three distances.

func TestConformanceEmbedded(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(embedded(t, tcp.Config{}.Defaults()))
	})
}

// TestConformanceStriped cuts every put of the suite that is not small into stripes.
func TestConformanceStriped(t *testing.T) {
	c := tcp.Config{}.Defaults()
	c.Streams, c.Stripe = 5, 4096
	transporttest.Run(t, func(t testing.TB) *transporttest.Side { return transporttest.Embedded(embedded(t, c)) })
}

// TestConformanceOverABadNetwork is the suite over the network that netem makes of the
// device in TCP_TEST_NETEM (scripts/netem-test.sh). Each answer takes two delays, and
// what is lost last in a row is sent again after 200 ms.
func TestConformanceOverABadNetwork(t *testing.T) {
	if os.Getenv("TCP_TEST_NETEM") == "" {
		t.Skip("needs a network device that may be spoiled: TCP_TEST_NETEM names none")
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(embedded(t, tcp.Config{}.Defaults()))
	}, func(o *transporttest.Options) { o.TestLimit, o.CallLimit = 4*time.Minute, 20*time.Second })
}

func TestConformanceOverTheWire(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(plugintest.Wrap(t, embedded(t, tcp.Config{}.Defaults())))
	})
}

func TestConformanceAsPlugin(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.External(asPlugin(t, nil))
	})
}
