// Package comm joins ranks into communicators and builds channels between them.
//
// A [Communicator] owns everything that a group of ranks shares: the links that
// transports made, registered memory, semaphores, the control word that ends
// every wait, and the kernels that the transports carry. It is the only caller of
// [framework.Transport].
//
// # Two planes
//
// Setting up is slow and collective: [Communicator.Exchange], MemoryChannels,
// SwitchChannel and Split are called by all ranks in the same order, PortChannel
// and MemoryChannel by both ends. Each takes a context and ends with it; with the
// communicator, too: when that fails or is closed. Moving
// data is fast and local: kernels use the handles that set-up returned, and no
// method of this package is called per message.
//
// # How a pair of ranks is linked
//
// When a kind of channel is first wanted between two ranks, each of them asks all
// its transports of that kind for an endpoint and sends the other what it got:
// names, reach tokens and addresses. Both then compute the same choice: the first
// transport in the order of preference, which is the same on all ranks, whose
// endpoints share a token. From there on a failure is an error. Nothing falls
// back silently to a slower link: the log warns, once, of a transport that is
// preferred and whose hardware is not there; see [Communicator.Survey].
//
// # Devices
//
// Kernels get addresses of the rank's device, in handles, and host code does not
// touch them: memory of a device need not be visible to the host. What both use is
// host memory that the device has mapped: the control words and the rings of port
// channels, each with its address there. What the host wants of the device's memory,
// counters to reset or to show, it gets by copies and stores on a stream of the
// communicator's own, which kernels that wait do not hold up.
//
// Port channels of a transport that leaves them to the rank are driven by the
// device's copy engine, over one stream a peer; see [proxy.Copier]. Kernels of a
// device and the host push to different rings: order between their requests is made
// by a flush.
//
// # How calls fail
//
// A set-up call begins with what each rank can do. A rank that cannot take part,
// because its memory was freed or because it is in another call, says so: all get
// an error that names it, and the communicator is as good as before. What fails
// after that, or a context that ends meanwhile, leaves others waiting for messages
// that will not come. So it aborts the communicator, and all ranks end with an
// error that names the rank where it failed.
//
// # What closes what
//
// Memory, exchanged memory and channels are closed by their Close. Closing memory
// closes what was built on it, and closing the communicator closes everything that
// it made. All of that is local: a peer keeps what it has mapped. The number of a
// semaphore is used again when both ends are closed.
//
// # How waits end
//
// Kernels wait for words in memory, without a deadline by default. All of them
// also watch [device.WaitControl].Abort. The communicator sets it when a rank or
// a plugin dies, or when Abort is called; from then on it answers only Err and
// Close, and Err names the party that is to blame. What a rank waits for while all
// are well is shown by Dump.
package comm
