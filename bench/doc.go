// Package bench measures and checks collectives. It is behind the verbs bench and
// check of mscclpp-run.
//
// # Method
//
// For every size: a number of untimed iterations, then the timed ones. An iteration
// is a barrier between the ranks, a look at the clock, one or more calls back to
// back, and a look at the clock; its sample is the difference divided by the number
// of calls. Each rank takes the median of its samples, and the slowest rank's median
// is the result, time_us. Small sizes make many calls in an iteration, because the
// ranks leave a barrier up to a microsecond apart and the clock itself takes some
// tens of nanoseconds; [Plan] is the rule. A barrier before every iteration keeps
// ranks from drifting apart further than one iteration, as in the benchmarks of MPI
// implementations.
//
// On GPUs barrier, calls and the events before and after them are enqueued on one
// stream; the sample is the time between the events. Calls may be recorded in a graph
// before: then nothing begins until all of an iteration is enqueued, and the host's own
// time does not count. Another library, a [Peer], performs the same calls on the same
// buffers, in turns. docs/performance.md says what the tables are made of.
//
// Buffers are page aligned and written once before the first call, so that no page
// fault is measured. Without --registered they are ordinary memory of the Go heap
// of which the library knows nothing.
//
// The program in bench/mpi does the same, step by step, with MPI.
//
// # Bandwidth
//
// algbw is bytes, the larger buffer of the collective, over time. busbw multiplies
// it by the factor of nccl-tests, so that the number compares to the speed of the
// link whatever the number of ranks.
package bench
