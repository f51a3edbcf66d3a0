package bench

import (
	"context"
	"time"
)

// Group is the communicator under test, seen by one rank. [Job] is the real one;
// tests of this package run on a group of goroutines.
type Group interface {
	Rank() int
	Size() int
	// Do runs one collective. It returns when the caller's buffers may be used again or,
	// if the group has a queue, when the call is enqueued.
	Do(*Call) error
	// Barrier is the barrier of the collectives, fast enough to align a measurement.
	// It is enqueued if the group has a queue.
	Barrier() error
	// AllGather exchanges results over the control plane.
	AllGather(ctx context.Context, data []byte) ([][]byte, error)
	// Alloc returns memory, ordinary or registered with the communicator. Every rank calls
	// it with the same arguments. The memory lives as long as the communicator.
	Alloc(bytes int64, registered bool) (Memory, error)
	// Queue returns the queue on which calls are enqueued; nil if they are done when they
	// return.
	Queue() Queue
	// Algorithms lists the algorithms that can be requested by name.
	Algorithms(Collective) []string
	// Chosen names the algorithm that Do runs for the call.
	Chosen(*Call) (string, error)
}

// Queue is the stream of a device.
type Queue interface {
	// Finish waits for everything that was enqueued.
	Finish() error
	// Time returns how long the device takes for what f enqueues, from the end of what
	// align enqueued. If held, the device begins neither before all of both is enqueued,
	// so that the time does not depend on the host's.
	Time(held bool, align, f func() error) (time.Duration, error)
	// Capture records what f enqueues, to be launched later.
	Capture(f func() error) (Graph, error)
}

// Graph is a recorded sequence of calls.
type Graph interface {
	Launch() error
	Close() error
}

// Peer is another library that performs the same calls on the same memory.
type Peer interface {
	Name() string // with its version: "nccl 2.28.3"
	// Prepare registers buffers. Collective.
	Prepare(...Memory) error
	// Release undoes Prepare, before the buffers are freed.
	Release() error
	// Supports says whether Do can perform the call.
	Supports(*Call) bool
	// Do performs a call n times, with nothing between that a program of the library's own
	// language would not have there.
	Do(c *Call, n int) error
}

// finish waits for the queue, if there is one.
func finish(g Group) error {
	if q := g.Queue(); q != nil {
		return q.Finish()
	}
	return nil
}
