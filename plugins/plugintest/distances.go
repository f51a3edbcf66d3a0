package plugintest

import (
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// Distances are how far a transport can be from its rank: in its process, behind the boundary, and in a process of its own,
// which is this test program with the environment that makes it the plugin.
func Distances(name string, embedded func(t testing.TB) framework.Transport, env func() []string) map[string]func(t testing.TB) *transporttest.Side {
	return map[string]func(t testing.TB) *transporttest.Side{
		"embedded": func(t testing.TB) *transporttest.Side { return transporttest.Embedded(embedded(t)) },
		"wire":     func(t testing.TB) *transporttest.Side { return transporttest.Embedded(Wrap(t, embedded(t))) },
		"plugin": func(t testing.TB) *transporttest.Side {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			c, err := plugins.Open(t.Context(), plugins.Spec{Name: name, Path: self, Env: env()})
			if err != nil {
				t.Fatal(err)
			}
			return transporttest.External(c)
		},
	}
}
