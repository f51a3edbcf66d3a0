// Package comm joins ranks into communicators and builds channels between them.
//
// A [Communicator] owns everything that a group of ranks shares: the links that
// transports made, registered memory, semaphores, the control word that ends every
// wait, and the kernels that the transports carry. It is the only caller of
// [framework.Transport].
//
// # Set-up and data path
//
// Set-up is slow and collective: all ranks call [Communicator.Exchange],
// MemoryChannels, SwitchChannel and Split in the same order, and both ends call
// PortChannel and MemoryChannel. Each of these calls takes a context. It fails when the
// context ends, and when the communicator fails or is closed.
//
// Moving data is fast and local: kernels use the handles that set-up returned, and call
// no method of this package per message.
//
// # How a pair of ranks is linked
//
// When a kind of channel is first needed between two ranks, each of them asks all its
// transports of that kind for an endpoint, and sends the other what it got: names,
// reach tokens and addresses. Both then make the same choice: the first transport whose
// endpoints share a token, in the order of preference, which is the same on all ranks.
// From then on a failure is an error. There is no silent fallback to a slower link: if
// the hardware of a preferred transport is missing, the log warns of it once; see
// [Communicator.Survey].
//
// # Devices
//
// Handles hold addresses of the rank's device for kernels. Host code does not access
// these addresses: device memory need not be visible to the host. Host and kernels
// share host memory that the device has mapped, which holds the control words and the
// rings of port channels, each with its address on the device. To reset or show
// counters in device memory, the host uses copies and stores on a stream of the
// communicator's own, which waiting kernels do not block.
//
// If a transport leaves its port channels to the rank, the device's copy engine drives
// them, over one stream for each peer; see [proxy.Copier]. Kernels of a device and the
// host push to different rings: only a flush orders their requests relative to each
// other.
//
// # How calls fail
//
// A set-up call begins with an exchange of what each rank can do. A rank that cannot
// take part, because its memory was freed or because it is in another call, says so:
// all ranks get an error that names it, and the communicator remains usable. A failure
// after that point, or a context that ends meanwhile, would leave other ranks waiting
// for messages that never come. So it aborts the communicator, and all ranks get an
// error that names the rank where it failed.
//
// # The order of closing
//
// Memory, exchanged memory and channels are closed by their Close methods. Closing
// memory closes what was built on it, and closing the communicator closes everything
// that it made. All of that is local: a peer keeps what it has mapped. The number of a
// semaphore is reused after both ends are closed.
//
// # How waits end
//
// Kernels wait for words in memory, by default without a deadline. Every wait also
// watches [device.WaitControl].Abort. The communicator sets this word when a rank or a
// plugin dies, or when Abort is called. From then on the communicator can only report
// its state (Err, Dump) and be closed; Err names the party that failed. While all ranks
// are alive, Dump shows what a rank waits for.
package comm
