package ibhost_test

import (
	"context"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/ib-host"
	"github.com/mscclpp-go/mscclpp/transports/internal/verbs/verbstest"
)

var suite = verbstest.Suite{
	New:   func() (framework.Transport, error) { return ibhost.New(ibhost.Config{}.Defaults()) },
	Serve: func() { plugins.Serve(ibhost.New) },
	Wrap:  func(t testing.TB, tr framework.Transport) framework.Transport { return plugintest.Wrap(t, tr) },
	Open: func(ctx context.Context, path string, env []string) (transporttest.Client, error) {
		return plugins.Open(ctx, plugins.Spec{Name: ibhost.Name, Path: path, Env: env})
	},
}

func TestMain(m *testing.M) { suite.Main(m) }

func TestConformanceEmbedded(t *testing.T)    { suite.Embedded(t) }
func TestConformanceOverTheWire(t *testing.T) { suite.OverTheWire(t) }
func TestConformanceAsPlugin(t *testing.T)    { suite.AsPlugin(t) }
func TestLeaveOneByOne(t *testing.T)          { suite.OneByOne(t) }
