// Package processors says on which processors of the machine this process may run.
package processors

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Allowed lists the numbers of the processors on which the calling process may run,
// ascending. Those of a container or a batch job are fewer than the machine has.
func Allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("which processors may be used: %w", err)
	}
	list := make([]int, 0, set.Count())
	for cpu := 0; len(list) < cap(list); cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list, nil
}
