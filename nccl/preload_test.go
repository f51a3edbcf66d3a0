package nccl

import (
	"os/exec"
	"testing"
	"time"
)

// A process that never communicates pays for a preloaded library what mapping it costs. Processor time is compared, and
// the least of many: what else the machine does is in neither. libm, one of the smallest libraries that there are, is the
// measure for machines that are slower than those where 0.05 ms were decided.
func TestPreloadCost(t *testing.T) {
	ours := library(t) + "/libnccl.so.2"
	least := map[string]time.Duration{}
	var cost, measure time.Duration
	for range 10 { // a busy machine takes longer to show the least of each
		for range 300 {
			for _, preloaded := range []string{"", ours, "libm.so.6"} {
				c := exec.Command("/bin/true")
				c.Env = []string{"LD_PRELOAD=" + preloaded}
				if err := c.Run(); err != nil {
					t.Fatal(err)
				}
				took := c.ProcessState.UserTime() + c.ProcessState.SystemTime()
				if before, ok := least[preloaded]; !ok || took < before {
					least[preloaded] = took
				}
			}
		}
		cost, measure = least[ours]-least[""], least["libm.so.6"]-least[""]
		if cost <= 50*time.Microsecond || cost <= measure {
			t.Logf("%v, and libm %v", cost, measure)
			return
		}
	}
	t.Errorf("%v a process: expected 50 µs, or the %v of libm", cost, measure)
}
