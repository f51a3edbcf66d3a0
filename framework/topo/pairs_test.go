package topo

import (
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestPairsOfRecordedMachines(t *testing.T) {
	for machine, want := range map[string]struct {
		pairs int
		first framework.DeviceLink
		text  string
	}{
		"h200":        {7, framework.DeviceLink{Count: 18, Version: 4, Switch: true}, "0000:3b:00.0 18 v4 switch, "},
		"a100-direct": {3, framework.DeviceLink{Count: 4, Version: 3}, "0000:41:00.0 4 v3, "},
		"a10":         {text: "none"},
	} {
		h := readMachine(t, machine)
		pairs := h.GPUs[0].Pairs(h.GPUs)
		if len(pairs) != want.pairs {
			t.Fatalf("%s: %+v: want %d", machine, pairs, want.pairs)
		}
		if len(pairs) > 0 {
			want.first.Peer = h.GPUs[1].PCI
			if pairs[0] != want.first {
				t.Errorf("%s: %+v, want %+v", machine, pairs[0], want.first)
			}
		}
		if got := FormatPairs(pairs); !strings.HasPrefix(got, want.text) {
			t.Errorf("%s: %q, want %q", machine, got, want.text)
		}
	}
}
