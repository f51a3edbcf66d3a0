package framework

// Attachment is the recipe by which a rank reaches memory of its peers.
//
// The rank performs Steps in order. Each step refers by index to the mapping or object
// that it works on. A failed step is an error of the whole attachment; there is no
// silent fallback to another transport. Members of a switch group tell each other of a
// failed step at the next barrier, and wait for each other once more behind the last step:
// either all have the window, or none has, and none of the others is harmed.
//
// A memory channel needs one step: map the peer's segment. The same holds for a port
// channel that the rank drives (see ProxySite). A switch group needs all kinds of
// steps, in an order that the hardware dictates:
//
//	import  object 0          every member opens what the root created
//	add     object 0          every member adds its device
//	barrier                   no memory may be bound before all were added
//	bind    object 0 slot r   the member's memory becomes part of the window
//	barrier                   no window may be used before all were bound
//	map     mapping 0         the window becomes an address
type Attachment struct {
	ID       ID // for Close; 0 if there is nothing to free in the transport
	Mappings []Mapping
	Steps    []Step
}

// Mapping is memory that the rank has to make addressable.
type Mapping struct {
	Role   Role
	Peer   int     // the rank whose memory it is; -1 for a group
	Shares []Share // best first: only the rank learns that an import failed
	Offset uint64  // of the mapped range within the share, in bytes
	Bytes  uint64
}

// Role says what a mapping is for.
type Role uint8

// Roles of a mapping.
//
// An inbox is for transports that cannot raise the counters of semaphores in place, for
// example in device memory; their signal is SignalImmediate or SignalProxy. Once a port
// is linked, the rank calls Attach with its own counters as local and the peer's as
// key. The inbox in the answer is host memory of the same size as local. When the peer
// signals the word at some offset of local, the transport adds to the word at the same
// offset of the inbox, after the data. The rank's forwarder does the rest. Words of an
// inbox are never reset. If the answer has no inbox, the transport raises the counters
// itself.
//
// Streams are for transports whose links are connected sockets, and whose Description
// sets Streams: the rank can drive these sockets itself (framework/stream), so that a
// small message passes through two processes fewer. When both ends want that, each
// calls Attach on its port connection with local 0 and no keys. The transports then
// connect and authenticate, within ctx and their own limit, and each answers with one
// mapping whose shares, of kind ShareSocket, are the sockets in the same order at both
// ends; Bytes is the part of a put that is worth a socket of its own, or 0. The sockets
// hold no unread bytes other than those of the ranks' own protocol. The transport may
// keep duplicates to watch the peer's host, and shuts the sockets down when it gives
// the peer up. Close of the attachment's ID closes them. A rank whose kernels are not
// on the host, or whose peer cannot do this, uses the transport's proxy instead.
const (
	RolePeer      Role = 1 // memory of one peer: loads and stores reach it
	RoleMulticast Role = 2 // window of a switch group
	RoleInbox     Role = 3 // words that the transport writes for a forwarder to read
	RoleStream    Role = 4 // sockets to one peer, which the rank drives
)

// Step is one action of the rank.
type Step struct {
	Op      StepOp
	Mapping int // index into Attachment.Mappings, for StepMap and StepImport
	Object  int // index into the objects of the group, for import, add and bind
	Slot    int // for StepBind: which member's memory is bound

	// Share is the memory that StepBind binds: nil for the rank's own registered memory,
	// else memory of another member that this rank has to bind as well. Hardware
	// needs the first form only; an emulated switch uses the second.
	Share  *Share
	Offset uint64 // within the memory that is bound
	Bytes  uint64
}

// StepOp is the operation of a Step.
type StepOp uint8

// Verbs of a step.
const (
	StepImport  StepOp = 1 // open the object whose shares are in Mappings[Mapping]
	StepAdd     StepOp = 2 // add the rank's device to the object
	StepBind    StepOp = 3 // bind memory to a slot of the object
	StepMap     StepOp = 4 // make Mappings[Mapping] an address
	StepBarrier StepOp = 5 // wait for all members of the connection
)

// Close closes all descriptors of the attachment.
func (a Attachment) Close() error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, m := range a.Mappings {
		for _, s := range m.Shares {
			keep(s.Close())
		}
	}
	for _, s := range a.Steps {
		if s.Share != nil {
			keep(s.Share.Close())
		}
	}
	return first
}
