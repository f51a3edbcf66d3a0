package launch

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Devices are counted by type, and without one the first type counts of which there is one.
func TestDevicesAreCounted(t *testing.T) {
	recording, err := os.ReadFile("../framework/topo/kfd/testdata/mi250.machine")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	others := func(n int, err error) Devices {
		return Devices{"acme", func() (int, error) { asked = append(asked, "acme"); return n, err }}
	}
	none := framework.ErrUnavailable
	amd, both := topo.Replay(string(recording)), topo.Replay(string(recording)+"\ndev/nvidia0 = \ndev/nvidia1 = \n")
	for name, c := range map[string]struct {
		wanted string
		list   []Devices
		want   int
		fails  error
		text   string
		asked  string // types that were counted among those of makers
	}{
		"NVIDIA's first":        {"", append(BuiltIn(both, noVariable), others(5, nil)), 2, nil, "", ""},
		"AMD's where none is":   {"auto", append(BuiltIn(amd, noVariable), others(5, nil)), 8, nil, "", ""},
		"AMD's beside others":   {"hip", BuiltIn(both, noVariable), 8, nil, "", ""},
		"a maker's behind them": {"host", append(BuiltIn(fstest.MapFS{}, noVariable), others(5, nil)), 5, nil, "", "acme"},
		"a maker's by name":     {"acme", append(BuiltIn(both, noVariable), others(5, nil)), 5, nil, "", "acme"},
		"none of a maker":       {"acme", append(BuiltIn(both, noVariable), others(0, none)), 0, none, "", "acme"},
		"a back end that fails": {"", append(BuiltIn(fstest.MapFS{}, noVariable), others(0, errors.New("no table"))), 0, nil, "no table", "acme"},
		"none at all":           {"", append(BuiltIn(fstest.MapFS{}, noVariable), others(0, none)), 0, none, "cuda: ", "acme"},
		"hidden":                {"hip", BuiltIn(amd, func(name string) (string, bool) { return "", name == "ROCR_VISIBLE_DEVICES" }), 0, none, "ROCR_VISIBLE_DEVICES= hides all 8", ""},
		"an unknown type":       {"acme2", append(BuiltIn(amd, noVariable), others(5, nil)), 0, framework.ErrInvalid, "expected one of cuda, hip, acme", ""},
	} {
		asked = nil
		n, err := CountDevices(c.wanted, c.list)
		if failed := c.fails != nil || c.text != ""; n != c.want || (err != nil) != failed || c.fails != nil && !errors.Is(err, c.fails) || failed && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %d, %v: expected %d, %v with %q", name, n, err, c.want, c.fails, c.text)
		}
		if got := strings.Join(asked, " "); got != c.asked {
			t.Errorf("%s: counted %q, expected %q", name, got, c.asked)
		}
	}
}
