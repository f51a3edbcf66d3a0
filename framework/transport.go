package framework

import "context"

// Transport carries bytes between ranks over one kind of link. It is a control plane:
// every call prepares or releases something, and none moves a message.
//
// Implemented by each plugin. Called by framework/comm and by nothing else.
//
// All methods may be called concurrently. All of them return within the deadline of
// ctx; an implementation that has to wait for a device limits the wait itself.
type Transport interface {
	// Describe says what the transport is and can do. It is pure: it touches no device,
	// works on a machine that has none, and always returns the same.
	Describe(ctx context.Context) (Description, error)

	// Register makes local memory known to the transport. Peers need the returned key
	// to reach the memory; it stays valid until Close(Registration.ID).
	// ErrUnsupported: memory of this device, or with these shares, cannot be used.
	Register(ctx context.Context, seg Segment) (Registration, error)

	// Listen prepares one side of a link of cfg.Kind. ErrUnsupported: the kind is not
	// in Description.Channels. ErrUnavailable: the kind is supported, but the device is
	// missing or not usable now; the text says what to do.
	Listen(ctx context.Context, cfg EndpointConfig) (Endpoint, error)

	// Connect joins a local endpoint to one peer, or to all other members of a switch
	// group in ascending order of rank. It does not wait for the peer to do the same.
	// ErrPeer: an address was not made by a compatible transport.
	Connect(ctx context.Context, local ID, peers []Peer) (conn ID, err error)

	// Attach returns how the rank reaches, over conn, the memory behind keys, one key
	// for each peer of the connection. local is the rank's own registration that takes
	// part (bound into a switch group, or source of puts over a port), or 0 for none.
	Attach(ctx context.Context, conn ID, local ID, keys []Parcel) (Attachment, error)

	// Close frees the object made under id. Closing an unknown or closed ID is not an
	// error. Closing an endpoint frees its connections.
	Close(ctx context.Context, id ID) error
}

// Prober is implemented by a transport that inspects the actual hardware: if and only
// if Description.Probe is set. Called by comm before the first Listen, and by doctor.
type Prober interface {
	Probe(ctx context.Context, facts Facts) (Live, error)
}

// Proxier is implemented by a transport whose port channels are driven by its own
// process: if and only if Description.Proxy is ProxyPlugin. Called by comm, once per
// trigger ring.
type Proxier interface {
	NewProxy(ctx context.Context) (Proxy, error)
}

// Imager is implemented by a transport that carries kernels: if and only if
// Description.Images is not empty. Called by comm when a kernel is first needed, never
// during capture.
type Imager interface {
	// Image returns the bytes of one image. ErrInvalid: no such id.
	// ErrUnavailable: the image is not built on this machine; the text says how.
	Image(ctx context.Context, id string) ([]byte, error)
}

// ID names something that a transport made. 0 is never a valid ID.
type ID uint64

// Registration is local memory that a transport has registered.
type Registration struct {
	ID  ID
	Key Parcel // for peers; owned by the caller
}

// EndpointConfig says what link is wanted, in terms of the whole job; a transport has
// further options of its own (see plugins.Serve).
type EndpointConfig struct {
	Kind    Kind   // memory, port or switch
	Rank    int    // of the caller within the communicator
	Ranks   []int  // for a switch: all members, ascending; else the two ends
	Group   string // names the communicator in messages; unique within the job
	Device  Device // where the rank's kernels run
	Facts   Facts  // about the machine, gathered by framework/topo
	Bytes   uint64 // for a switch: size of the group's window; else 0
	Pending int    // port: operations that may be outstanding; 0 = transport's default
}

// Root reports whether the rank creates the objects of its switch group.
func (c EndpointConfig) Root() bool { return len(c.Ranks) > 0 && c.Ranks[0] == c.Rank }

// Endpoint is one side of a link before it is connected.
type Endpoint struct {
	ID      ID
	Address Parcel // for peers; owned by the caller

	// Create lists objects that the rank has to create before the address is
	// sent. The share of each is appended to Address.Shares, in this order.
	Create []Object

	// Reach holds tokens such as "host:…", "nvlink:cluster/clique", "ib:subnet".
	// Two endpoints of one transport can be connected iff they share a token.
	Reach []string
}

// Object is something that a rank creates through its device's driver because it
// belongs to a group rather than to a buffer: a multicast object.
type Object struct {
	Kind  ObjectKind
	Bytes uint64 // size of its window
	Ranks int    // members that will be bound to it
}

// ObjectKind is the kind of an Object.
type ObjectKind uint8

// ObjectMulticast is a window: a store to it reaches the memory that each member has
// bound, and a load can reduce over it.
const ObjectMulticast ObjectKind = 1

// Peer is the far side of a link: its rank, and the address that its Listen returned.
type Peer struct {
	Rank    int
	Address Parcel
}

// Facts describe the machine around a rank. They are gathered by framework/topo. A
// transport uses the facts that it understands and may gather more by itself.
type Facts struct {
	Host  string            // identity of the host: boot id, or as configured
	NUMA  int               // node of the rank's device; -1 unknown
	NICs  []NIC             // nearest to the device first, equally near ones in the rank's turn
	Other map[string]string // vendor facts, keys "vendor/name"

	LinksKnown bool         // Links lists all
	Links      []DeviceLink // from the rank's device to others, as the device itself says
}

// NIC is one network adapter.
type NIC struct {
	Name     string // as the verbs library or the kernel names it
	Distance string // to the rank's device: PIX, PXB, PHB, NODE or SYS
	NUMA     int
}

// Live is the result of Probe.
type Live struct {
	Available bool
	Reason    string            // when not available: what is missing, and what to do
	Facts     map[string]string // for people: "device": "mlx5_0", "atomics": "hca"

	// Of a transport whose kernels reach into the memory of other devices.
	WholeLines bool         // stores of 128 bytes arrive whole between any two devices of this host
	LinksKnown bool         // Links lists all
	Links      []DeviceLink // from the rank's device to others
}

// DeviceLink describes the links between two devices.
type DeviceLink struct {
	Peer    string  // where the other device is on the bus: "0000:19:00.0"; of one that is on none, its UUID
	Count   int     // of links
	Version int     // 0: not known
	Switch  bool    // whether they go through switches, and so to all peers at once
	Kind    string  // the maker's word for them: "AcmeLink 2"; "": NVLink, or xGMI of AMD's
	Rate    float64 // GB/s that they carry, each way; 0: follows from version and count
	Latency float64 // µs from a store until a peer that polls has seen it; 0: not known
}
