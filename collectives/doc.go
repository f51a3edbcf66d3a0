// Package collectives moves and reduces data between all ranks of a communicator: all-reduce, all-gather,
// reduce-scatter, broadcast, reduce, all-to-all, gather, scatter, send and receive.
//
//	c, err := collectives.New(ctx, communicator, collectives.Options{})
//	…
//	err = c.AllReduce(in, out, count, kernel.Float32, kernel.Sum, nil)
//
// A call chooses an algorithm, fills one structure and launches one kernel. The transports of the communicator carry
// the kernels; their sources are in the folder kernels. The algorithm of a call is decided by the first of these that
// names one: the caller's CallOptions, the selector that the program registered, the table of the configuration, the
// built-in table.
//
// # Rules for callers
//
// All ranks call the same collectives in the same order with the same count, type, operation and root, as with NCCL and
// MPI. Counts are per rank, as in NCCL. Results are bitwise identical on all ranks and in all runs.
//
// Options.Signatures says how mistakes are detected: before data moves ("always"), or after each call, in which case
// the communicator ends ("stall", the default). On the host, a rank that has left the job without making the call is
// detected as well.
//
// Messages (send, receive, gather, scatter, all-to-all-v) are not compared in this way, because only some ranks call
// them. They are matched by peer and order. Only their lengths in bytes have to agree, which is always checked. A
// message must be received before the next collective that both its ranks call. Over several hosts, all-to-all-v is a
// call of all ranks.
//
// Buffers can be in any memory. A buffer that was exchanged with
// [github.com/mscclpp-go/mscclpp/framework/comm.Communicator.Exchange] is called registered: peers access it in place.
// For inputs, and likewise for outputs, either all ranks pass registered buffers to a call or none does; the input of a
// broadcast and the output of a reduction to one rank are exempt. The registered buffers of a call are parts of one
// exchange. Their offsets may differ, except in calls that use copy engines: see Options.NoCopies.
//
// # Hosts
//
// Where not all ranks share memory, calls have two levels: kernels inside a host, and port channels between hosts,
// which the host drives. Where all hosts have the same number of GPUs, and the network reaches their memory, kernels
// drive the port channels (algorithm hierarchical_direct; messages if there are at most 64 ranks on other hosts); such
// calls can be captured. The first call of a job finds out whether this is possible. See docs/design/hosts.md and
// hosts-kernels.md. A host with more ranks than one launch can address, 72, counts as several hosts.
//
// # GPUs
//
// A call returns when its kernels are enqueued. Later failures are reported by the next call or by Check: the death of
// a peer and, with Options.Signatures "always", that ranks have made different calls, in which case no data was moved.
// With "stall", a watch compares the calls that ranks have begun, and ends the communicator when they differ. After the
// communicator has ended, the contents of all buffers that calls in progress write are undefined, even on a rank whose
// own kernels completed normally: that rank learns of the failure a moment later, from its next call, Check or Close.
//
// Calls can be captured into graphs. The first call of a collective, and of a type if it reduces, loads the kernels of
// all sizes, as Prepare does, also while it is captured. Algorithms that use copy engines, or a switch, need a first call
// outside of a capture, because ranks make memory for them together (Options.CopyScratch; it grows outside of captures, too): in a capture before that, and
// where a device has no memory left for them, kernels serve the calls that tables would give to them; a program that
// names such an algorithm gets an error.
//
// Calls use the same memory one after another. A program that launches a graph of calls therefore orders it relative to
// its other work with this Comm, as if all were on one stream. It captures calls over several hosts, and calls that use
// copy engines, on one stream at a time.
//
// Calls on one Comm are serialized: one on another stream than the last begins when the last has ended. A stream that
// is no longer there at that time has to have ended before. Different Comms are independent. Two of them may have calls
// in another order on one rank than on the next: neither fills a GPU with calls that wait, if ranks do not share GPUs.
// For three and more Options.MaxBlocks has to be smaller, and there are exceptions: see docs/memory-model.md,
// "Overlapping launches".
package collectives
