// Package framework is the contract between a job and the links that carry its bytes.
// It contains interfaces and plain data, imports only the standard library, and is
// everything that the author of a transport has to know.
//
// # The idea: a transport returns mappings
//
// A kernel moves data in one of two ways: it loads and stores through addresses that
// some memory system made valid, or it asks a processor (a NIC, a copy engine, a
// thread) to move the data. How such an address is made valid differs between
// interconnects; how it is used is the same everywhere. So a transport does not move
// data for its caller. As a container snapshotter answers with mounts and never reads a
// file, a [Transport] answers with a recipe, the [Attachment]: what to import, what to
// map, where to wait for the others. The rank process carries out the recipe, because
// the resulting addresses are valid only there.
//
// Two rules follow, and the rest of the package follows from them:
//
//  1. A transport returns data: never a pointer, never behavior. It may
//     therefore live in another process and be written in another language.
//  2. Nothing in the contract is called per message. A call may cross a process
//     boundary and cost 100 µs. Messages go through mapped memory, or through a
//     ring in shared memory that a [Proxy] drains.
//
// # Terms
//
//   - A rank is one member of a communicator, numbered from 0. A rank process
//     holds one or more ranks.
//   - A [Segment] is memory of the local rank that is offered to a transport.
//     Registering it yields a [Registration]: an ID for local use, and a key for
//     peers.
//   - An [Endpoint] is one side of a link before the other side is known. Its
//     address goes to the peers.
//   - A connection is an endpoint joined to one peer, or to all other members of
//     a switch group.
//   - A [Parcel] is a message that ranks send to each other on behalf of a transport:
//     opaque bytes, and shares. Only the transport that made a parcel looks
//     inside it.
//   - A [Share] is one way to reach an allocation from another process: a file
//     descriptor or a driver's blob.
//   - An [ID] names something that a transport made. IDs are never reused.
//
// # The life of a link
//
// [github.com/mscclpp-go/mscclpp/framework/comm] is the only caller. For every pair of
// ranks (for a switch: every group) each side does the same:
//
//	reg  := t.Register(ctx, segment)        // once per buffer
//	end  := t.Listen(ctx, config)           // once per link
//	     … create end.Create, then exchange end.Address and reg.Key …
//	conn := t.Connect(ctx, end.ID, peers)   // once per link
//	att  := t.Attach(ctx, conn, reg.ID, keys) // once per buffer and link
//	     … perform att.Steps in order; att.Mappings are now addresses …
//	t.Close(ctx, id)                        // conn, end.ID, reg.ID, in any order
//
// ExampleTransport runs exactly this, with a transport of sixty lines that carries
// bytes between two halves of one process.
//
// # Capabilities are data
//
// The [Description] of a transport states its abilities, and nothing else does. Never use a type
// assertion to find out whether it implements an optional interface: the client side of a plugin
// has every method, whatever the plugin behind it can do. (The one exception is [Helper], which a
// plugin's client never is.) Operations that the description does not claim must fail with
// [ErrUnsupported]; the conformance suite in framework/transporttest checks both directions.
//
// # Errors
//
// Six sentinel classes cross the process boundary unchanged under [errors.Is]:
// [ErrUnavailable], [ErrUnsupported], [ErrInvalid], [ErrPeer], [ErrClosed] and
// [ErrPlugin]. Wrap them in [Error] to say which operation, transport and peer.
//
// # Ownership of descriptors
//
// Every descriptor has one owner. A function that takes a [Segment], [Peer], [Parcel]
// or [Share] as an argument borrows its descriptors for the duration of the call and
// duplicates what it keeps. A function that returns one hands its descriptors over: the
// caller closes them with [Parcel.Close] or [Share.Close]. This holds within one
// process as well as across the boundary.
package framework
