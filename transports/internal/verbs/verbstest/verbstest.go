// Package verbstest runs the conformance suite on transports over verbs, at its three
// distances. It needs an RDMA device; scripts/rdma-test.sh runs it where there is one.
package verbstest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
)

// roleKey makes a test program the plugin.
const roleKey = "IB_TEST_ROLE"

// Suite is the suite for one transport. The test supplies the part for plugins: the part that
// transports share does not know the process boundary.
type Suite struct {
	// New makes the transport.
	New func() (framework.Transport, error)
	// Serve makes this program the plugin.
	Serve func()
	// Wrap puts a transport behind the boundary, in this process.
	Wrap func(testing.TB, framework.Transport) framework.Transport
	// Open starts the program at path, with env added, as the plugin.
	Open func(ctx context.Context, path string, env []string) (transporttest.Client, error)
}

// Main is TestMain.
func (s Suite) Main(m *testing.M) {
	if os.Getenv(roleKey) == "plugin" {
		s.Serve()
		return
	}
	os.Exit(m.Run())
}

func (s Suite) embedded(t testing.TB) framework.Transport {
	t.Helper()
	tr, err := s.New()
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// needsDevice skips where there is no RDMA, unless RDMA_REQUIRED says that there is.
func (s Suite) needsDevice(t *testing.T) {
	t.Helper()
	live, err := s.embedded(t).(framework.Prober).Probe(t.Context(), framework.Facts{})
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

// limits are longer in an emulated machine, whose clock runs on while others use its host.
func limits(o *transporttest.Options) {
	if os.Getenv("RDMA_REQUIRED") != "" {
		o.TestLimit, o.CallLimit = 4*time.Minute, 20*time.Second
	}
}

// Embedded runs the suite in this process.
func (s Suite) Embedded(t *testing.T) {
	s.needsDevice(t)
	transporttest.Run(t, func(t testing.TB) *transporttest.Side { return transporttest.Embedded(s.embedded(t)) }, limits)
}

// OverTheWire runs it in this process, through the boundary.
func (s Suite) OverTheWire(t *testing.T) {
	s.needsDevice(t)
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		return transporttest.Embedded(s.Wrap(t, s.embedded(t)))
	}, limits)
}

// AsPlugin runs it with a plugin for each side.
func (s Suite) AsPlugin(t *testing.T) {
	s.needsDevice(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	transporttest.Run(t, func(t testing.TB) *transporttest.Side {
		c, err := s.Open(t.Context(), self, []string{roleKey + "=plugin"})
		if err != nil {
			t.Fatal(err)
		}
		return transporttest.External(c)
	}, limits)
}
