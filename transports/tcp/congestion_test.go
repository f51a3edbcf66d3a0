package tcp

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"5f1c-77/4026531840", "5f1c-77/4026531840", true},
		{"5f1c-77/4026531840", "5f1c-77/4026532000", true}, // another namespace of one kernel
		{"5f1c-77/4026531840", "90ab-12/4026531840", false},
		{"5f1c-77/4026531840", "5f1c-7/4026531840", false},
		{"/4026531840", "/4026531840", false}, // the kernel is not known
		{"", "", false},
	} {
		if got := sameHost(c.a, c.b); got != c.want {
			t.Errorf("%q and %q are near: %v, expected %v", c.a, c.b, got, c.want)
		}
	}
}

// controls returns the congestion control of this system, and another one that it allows.
func controls(t *testing.T) (usual, other string) {
	t.Helper()
	var text [2]string
	for i, name := range []string{"tcp_congestion_control", "tcp_allowed_congestion_control"} {
		b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		if err != nil {
			t.Skipf("no list of congestion controls: %v", err)
		}
		text[i] = strings.TrimSpace(string(b))
	}
	for _, other := range strings.Fields(text[1]) {
		if other != text[0] {
			return text[0], other
		}
	}
	t.Skipf("no second congestion control: the system allows %q", text[1])
	return "", ""
}

// Streams within a host have the control of the option, at both ends; those between hosts the one
// that the system gives to all, although a listener cannot know the peer in time.
func TestCongestion(t *testing.T) {
	usual, other := controls(t)
	for _, c := range []struct {
		name, option string
		sameHost     bool
		want         string
	}{
		{"within a host", other, true, other},
		{"between hosts", other, false, usual},
		{"without the option", "", true, usual},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := two(t, func(config *Config) { config.LocalCongestion = c.option })
			conns, _ := linkOf(t, ends, framework.Host)
			for i := range ends {
				conn, err := find[*connection](ends[i].(*Transport), conns[i], "connection")
				if err != nil {
					t.Fatal(err)
				}
				if !conn.sameHost {
					t.Error("two transports of one process are not near")
				}
				conn.sameHost = c.sameHost
			}
			for i, a := range handOver(t, ends, conns) {
				for n, s := range a.Mappings[0].Shares {
					got, err := unix.GetsockoptString(int(s.FD.Fd()), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
					if err != nil || got != c.want {
						t.Errorf("rank %d, stream %d: congestion control %q, %v; expected %q", i, n, got, err, c.want)
					}
				}
			}
		})
	}
}

// A control that the system has not is refused where it is first asked for, by the name of
// the option.
func TestCongestionThatIsMissing(t *testing.T) {
	config := Config{}.Defaults()
	config.LocalCongestion = "missing_one"
	tr, err := newTransport(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort, Ranks: []int{0, 1}})
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "local_congestion") || !strings.Contains(err.Error(), `"missing_one"`) {
		t.Errorf("%v: expected %v that names the option and its value", err, framework.ErrUnavailable)
	}
}
