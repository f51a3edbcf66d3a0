package matrix

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench"
)

// judge says what is wrong with a case, given the verdicts of all ranks; "" if
// nothing is.
func judge(c Case, all []verdict) string {
	var faults []string
	for r, v := range all {
		switch {
		case v.Error != "":
			faults = append(faults, fmt.Sprintf("rank %d: %s", r, v.Error))
		case v.Wrong != 0:
			faults = append(faults, fmt.Sprintf("rank %d: %d wrong elements", r, v.Wrong))
		case v.Digests[0] != v.Digests[1]:
			faults = append(faults, fmt.Sprintf("rank %d: two calls on the same input differ", r))
		}
	}
	if len(faults) == 0 && equalEverywhere(c.Collective) {
		for r, v := range all {
			if v.Digests[0] != all[0].Digests[0] {
				faults = append(faults, fmt.Sprintf("rank %d: the result is not that of rank 0, bit for bit", r))
			}
		}
	}
	return strings.Join(faults, "; ")
}

// equalEverywhere says whether all ranks receive the same.
func equalEverywhere(c bench.Collective) bool {
	return c == bench.AllReduce || c == bench.AllGather || c == bench.Broadcast
}
