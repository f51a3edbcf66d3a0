// Package bench measures and checks collectives. It implements the verbs bench and
// check of mscclpp-run.
//
// # Method
//
// For every size there are some untimed iterations, then the timed ones. An iteration
// is a barrier between the ranks, a reading of the clock, one or more calls back to
// back, and another reading of the clock. Its sample is the difference divided by the
// number of calls. Each rank takes the median of its samples, and the slowest rank's
// median is the result, time_us.
//
// For small sizes an iteration has many calls, because the ranks leave a barrier up to
// a microsecond apart and the clock itself takes some tens of nanoseconds; [Plan] is
// the rule. The barrier before every iteration keeps ranks from drifting apart by more
// than one iteration, as in the benchmarks of MPI implementations.
//
// On GPUs, the barrier, the calls and the events before and after them are enqueued on
// one stream, and the sample is the time between the events. Calls may be recorded in a
// graph first. Then nothing begins until all of an iteration is enqueued, and the
// host's own time does not count. Another library, a [Peer], performs the same calls on
// the same buffers, alternating with ours. docs/performance.md says how the tables are
// made.
//
// Buffers are page aligned and written once before the first call, so that no page
// fault is measured. Without --registered they are ordinary memory of the Go heap,
// unknown to the library.
//
// The program in bench/mpi does the same, step by step, with MPI.
//
// # Bandwidth
//
// algbw is the size of the collective's larger buffer, in bytes, over time. busbw is
// algbw times the factor of nccl-tests, which makes it comparable to the speed of the
// link whatever the number of ranks.
package bench
