package measure

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/bench/report"
)

// A row without a time of the other algorithm has a line with the reason, others have none.
func TestMissingTimes(t *testing.T) {
	took := 2.5
	o := &other{algorithm: "allpair_ll8", why: errors.New("too large")}
	if got := o.missing(&report.Row{Collective: "allreduce", Bytes: 64}); !strings.Contains(got, "allreduce of 64 bytes: --vs allpair_ll8 has no time: too large") {
		t.Errorf("%q", got)
	}
	for _, x := range []struct {
		o   *other
		row report.Row
	}{{o, report.Row{PeerTimeUS: &took}}, {&other{algorithm: chosen}, report.Row{}}, {nil, report.Row{}}} {
		if got := x.o.missing(&x.row); got != "" {
			t.Errorf("%q, expected nothing", got)
		}
	}
}
