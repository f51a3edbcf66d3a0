package lanes

import (
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
)

// The bound of set-up grows with the ranks of a job, and with the lanes that the processors of a host have to make.
func TestPatience(t *testing.T) {
	const least = engine.PreparePatience
	for _, x := range []struct {
		ranks, here, lanes, processors int
		want                           time.Duration
	}{
		{2, 2, 1, 2, least + 50*time.Millisecond},
		{128, 8, 127, 128, 3*least + 350*time.Millisecond},
		{80, 80, 16, 2, 2*least + 32*time.Second},          // parts of ten
		{73, 73, 72, 2, 2*least + 131400*time.Millisecond}, // all pairs
		{73, 73, 72, 128, 2*least + 2050*time.Millisecond},
		{1021, 1021, 1020, 2, 16*least + mostLaneTime},
	} {
		if got := patience(x.ranks, x.here, x.lanes, x.processors); got != x.want {
			t.Errorf("%+v: %v, expected %v", x, got, x.want)
		}
	}
}
