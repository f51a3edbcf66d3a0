// Package collectives moves and reduces data between all ranks of a communicator:
// all-reduce, all-gather, reduce-scatter, broadcast, reduce, all-to-all, gather,
// scatter, send and receive.
//
//	c, err := collectives.New(ctx, communicator, collectives.Options{})
//	…
//	err = c.AllReduce(in, out, count, device.Float32, device.Sum, nil)
//
// A call chooses an algorithm, fills one structure and launches one kernel. The
// kernels are carried by the transports of the communicator; their sources are in
// the folder kernels. Which algorithm serves which call is decided, in this order,
// by the caller's CallOptions, by a selector that the program registered, by the
// table of the configuration, and by a built-in table.
//
// # Rules for callers
//
// All ranks call the same collectives in the same order with the same count, type,
// operation and root, as with NCCL and MPI. Options.Signatures says how mistakes
// are noticed: before data moves ("always"), or behind each call, with an end of the
// communicator ("stall", the default). On the host a rank that has left the job without
// the call is noticed as well. Messages (send, receive, gather, scatter, all-to-all-v)
// are calls of some ranks only, so there is no such comparison: they are matched by
// peer and order, and only their lengths in bytes have to agree, which is always
// checked. A message is received before the next collective that both its ranks call.
// Over several hosts an all-to-all-v is a call of all ranks. Counts are per
// rank, as in NCCL. Results are the same bits on all ranks and in all runs.
//
// A buffer of any memory works. One that was exchanged with
// [github.com/mscclpp-go/mscclpp/framework/comm.Communicator.Exchange] is
// registered: peers reach it where it is. Registration has to match among ranks, for
// inputs and for outputs: either all pass registered ones to a call, or none does (the
// input of a broadcast and the output of a reduction to one rank do not count). They
// are parts of one exchange; offsets may differ, except in calls that copy engines
// carry out: see Options.NoCopies.
//
// # Hosts
//
// Where not all ranks share memory, calls go in two levels: by kernels inside a host, over
// port channels between hosts, which the host drives. Where all hosts have as many GPUs,
// and the network reaches their memory, kernels drive them for all but all-to-all-v and
// messages, and such calls can be captured: algorithm hierarchical_direct. The first call
// of a job finds that out. Docs/decisions/0006 and 0009 say how.
//
// # GPUs
//
// A call returns when its kernels are enqueued. What goes wrong later is told by the
// next call, or by Check: the death of a peer, and with Options.Signatures "always"
// that ranks have called different things, in which case no data was moved. With
// "stall" a watch compares what ranks have begun, and ends the communicator.
// Behind an end nothing is worth anything that calls under way have put into buffers, also
// where a rank's own kernels had ended well: that rank learns of it a moment later, by its
// next call, by Check or Close.
//
// Calls can be captured into graphs once the collective was called outside of one, with
// the type if it reduces: that loads the kernels of all sizes, as Prepare does. What a
// program names itself, and algorithms by copy engines, which also allocate, are to be
// used once each. Captures before that are refused. Calls use the same memory one after
// another: a program that launches a graph of them orders it with what else it has
// enqueued, as on one stream; and captures calls over hosts on one stream at a time.
//
// Calls on one Comm are serialized. Different Comms are independent.
package collectives
