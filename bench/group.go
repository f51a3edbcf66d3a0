package bench

import "context"

// Group is the communicator under test, seen by one rank. [Job] is the real one;
// tests of this package run on a group of goroutines.
type Group interface {
	Rank() int
	Size() int
	// Do runs one collective and returns when the caller's buffers are done with.
	Do(*Call) error
	// Barrier is the barrier of the collectives, fast enough to align a measurement.
	Barrier() error
	// AllGather exchanges results over the control plane.
	AllGather(ctx context.Context, data []byte) ([][]byte, error)
	// Alloc returns memory registered with the communicator. Every rank calls it with
	// the same size. The memory lives as long as the communicator.
	Alloc(bytes int64) ([]byte, error)
	// Algorithms lists what can be asked for by name.
	Algorithms(Collective) []string
	// Chosen names the algorithm that Do runs for the call.
	Chosen(*Call) (string, error)
}
