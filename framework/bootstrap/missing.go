package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
)

// missingText names ranks, with ranges: "ranks 1, 4-7 of 9 …".
func missingText(ranks []int) string {
	if len(ranks) == 0 {
		return "all ranks have checked in"
	}
	const limit = 16
	var parts []string
	for i := 0; i < len(ranks); {
		if len(parts) == limit {
			parts = append(parts, "…")
			break
		}
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		part := strconv.Itoa(ranks[i])
		if j > i {
			part += "-" + strconv.Itoa(ranks[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0] + " is missing"
	}
	return fmt.Sprintf("%d ranks are missing: %s", len(ranks), strings.Join(parts, ", "))
}
