// Package simulate predicts how long collectives over many hosts take. It describes a machine by a
// dozen numbers, and an algorithm by the bytes that each rank sends to each; it moves no data and
// needs no device. The verb simulate of mscclpp-run prints its predictions. docs/scaling.md derives
// the formulas and compares them with measured times.
//
// # The machine
//
// A [Machine] has, on each host, GPUs joined by a switch and some network adapters. Every
// GPU has one link into the switch and shares the adapters with its neighbors. Links
// and adapters carry their rate in both directions at once. Between the adapters of two
// hosts there is only latency: the network has no congestion. That is the largest
// assumption of this package.
//
// # Resources and tasks
//
// A rank has four resources that do one job at a time: its link, its share of the
// adapters, the memory system that reduces, and the thread that posts messages. A task
// occupies one of them for a time that follows from bytes and messages, and its result
// arrives a latency later. A latency occupies nothing: while one message is in flight,
// the next is posted.
//
// An algorithm is a list of stages. A message is cut into pieces, and every piece goes
// through all stages in order. Pieces wait for each other only where they need the same
// resource, which serves whichever is ready first. The simulation in this package
// executes that, event by event. So the overlap of the network with the links, and of
// reductions with both, is a result and not an assumption.
//
// # Why one rank stands for all
//
// All hosts with the same number of ranks do the same at the same time, and so do the
// ranks of a host. One rank of each kind is simulated, which makes 1,024 hosts as cheap
// as two. Where kinds of hosts meet, in the network, all wait for the slowest kind. A
// broadcast is represented by its root and the path away from it, since no other rank
// has more to do.
//
// # Closed forms
//
// Each simulated time comes with a closed form, a bound that no order of pieces can
// beat: the time of one piece through all stages, or the work of the busiest resource
// on all pieces, with the way to it and from it. With one piece the bound and the
// simulation are equal. With more pieces, the simulation adds what the bound does not
// contain: pieces that meet at a resource and wait. Tests compare the two, and compare
// the bytes of both with messages that are enumerated one by one.
//
// Units are bytes, microseconds, and GB/s (10^9 bytes). A prediction is no measurement:
// it has no noise, no congestion, no slow rank and no bad day.
package simulate
