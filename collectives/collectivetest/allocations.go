package collectivetest

import "testing"

// Allocations returns how many allocations a call makes that all ranks of a process make: rank 0 counts those of the process. The others get 0.
func Allocations(rank int, call func()) float64 {
	const calls = 200
	if rank == 0 {
		return testing.AllocsPerRun(calls, call)
	}
	for range calls + 1 { // rank 0 makes one before it counts
		call()
	}
	return 0
}
