package loopnet_test

import (
	"os"
	"testing"

	"example.com/loopnet"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// TestMain makes this test program the plugin when the suite starts it as one.
func TestMain(m *testing.M) {
	if os.Getenv("LOOPNET_SERVE") != "" {
		plugins.Serve(loopnet.New)
		return
	}
	os.Exit(m.Run())
}

func TestEmbedded(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		transport, err := loopnet.New(loopnet.Config{}.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.Embedded(transport)
	})
}

func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		c, err := plugins.Open(t.Context(), plugins.Spec{Name: "loopnet", Path: self, Env: []string{"LOOPNET_SERVE=1"}})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.External(c)
	})
}
