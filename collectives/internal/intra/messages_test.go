package intra

import (
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
)

// Kernels with lines come first where they can be used, and only there.
func TestOfferedMessages(t *testing.T) {
	for name, x := range map[string]struct {
		host    bool
		noLines bool
		lanes   uint32
		kernels []string
		want    string
	}{
		"GPUs":                  {lanes: 64, kernels: []string{"chunk", "ll128", "few_ll128"}, want: "[ll128 chunk] true"},
		"links that tear lines": {noLines: true, lanes: 64, kernels: []string{"chunk", "ll128", "few_ll128"}, want: "[chunk] false"},
		"no room":               {kernels: []string{"chunk", "ll128", "few_ll128"}, want: "[chunk] false"},
		"hosts":                 {host: true, kernels: []string{"chunk"}, want: "[chunk] false"},
		"nothing":               {lanes: 64, want: "[] false"},
	} {
		m, lines := &messenger{host: x.host}, !x.noLines && x.lanes != 0
		found := map[string]*engine.Kernel{}
		for _, k := range x.kernels {
			found[k] = &engine.Kernel{}
		}
		m.offer(found, 2, lines)
		if got := fmt.Sprint(named(m.offers()), m.few != nil); got != x.want {
			t.Errorf("%s: %s, expected %s", name, got, x.want)
		}
		if m.offer(found, kernelargs.LLRanks+1, lines); m.few != nil {
			t.Errorf("%s: short arguments for more ranks than they have room for", name)
		}
	}
}
