// Package scaling predicts how long collectives over many hosts take. It knows a
// machine by a dozen numbers and an algorithm by who sends how much to whom; it
// moves no data and needs no device. The verb simulate of mscclpp-run prints what it
// says, and docs/scaling.md derives the formulas and compares them with measured
// times.
//
// # The machine
//
// A [Machine] has, on each host, GPUs joined by a switch and some network adapters.
// Every GPU has one link into the switch and shares the adapters with its neighbors.
// Links and adapters carry their rate in both directions at once. There is nothing
// between the adapters of two hosts but time: a network without congestion. That is
// the largest assumption of this package.
//
// # Resources and tasks
//
// A rank has four things that do one job at a time: its link, its share of the
// adapters, the memory system that reduces, and the thread that posts messages. A
// task occupies one of them for a time that follows from bytes and messages, and its
// result arrives a latency later. A latency occupies nothing: while one message
// flies, the next is posted.
//
// An algorithm is a list of stages. A message is cut into pieces; every piece goes
// through all stages in order, and pieces wait for each other only where they need
// the same resource, which serves whoever is ready first. The simulation in this
// package executes that, event by event. So the overlap of the network with the
// links, and of reductions with both, is not assumed but comes out.
//
// # Why one rank stands for all
//
// All hosts with the same number of ranks do the same at the same time, and so do
// the ranks of a host. One rank of each kind is simulated, which makes 1,024 hosts as
// cheap as two. Where kinds of hosts meet, in the network, everybody waits for the
// slowest kind. The root of a broadcast and the path away from it stand for that
// collective: nobody else has more to do.
//
// # Closed forms
//
// Beside each simulated time stands a closed form, a bound that no order of pieces can
// beat: the way of one piece through all stages, or the work of the busiest resource
// on all pieces with the way to it and from it. With one piece both are the same. With
// more, the simulation shows what the bound cannot know: pieces that meet at a
// resource and wait. Tests hold the two against each other, and the bytes of both
// against messages that are enumerated one by one.
//
// Units are bytes, microseconds, and GB/s (10^9 bytes). A prediction is no
// measurement: it has no noise, no congestion, no slow rank and no bad day.
package scaling
