package framework

// Description states what a transport can do. The conformance suite tests every claim,
// and tests that whatever is not claimed fails with ErrUnsupported.
type Description struct {
	Name     string       // lower case, as in configuration: "shm", "ib-host"
	Version  string       // of the transport, semantic
	Channels []Kind       // kinds of link that Listen accepts
	Signal   Signal       // how a semaphore of this transport is raised
	Needs    []Need       // requirements on memory to be registered: one of these is enough
	Kernels  []KernelInfo // collectives that its images contain
	Images   []ImageInfo
	Proxy    ProxySite // the process that drives its port channels
	Probe    bool      // Prober is implemented
	Streams  bool      // links of port channels can be handed to the rank: see RoleStream
	Links    int       // connections to one peer that port channels use in turn; 0: one
}

// MostLinks bounds Description.Links.
const MostLinks = 64

// Has reports whether the transport offers links of kind k.
func (d Description) Has(k Kind) bool {
	for _, c := range d.Channels {
		if c == k {
			return true
		}
	}
	return false
}

// Signal says how the far side raises a semaphore.
type Signal string

// Ways to raise a semaphore.
const (
	SignalDirect    Signal = "direct"    // a store or reduction through mapped memory
	SignalMultimem  Signal = "multimem"  // a reduction through the switch
	SignalAtomic    Signal = "atomic"    // a remote fetch-and-add by the NIC
	SignalImmediate Signal = "immediate" // write-with-immediate, raised by a forwarder
	SignalProxy     Signal = "proxy"     // the receiving proxy raises it
)

// Need is a property of memory that allows a transport to register it.
type Need string

// Needs of a transport.
const (
	NeedMemFD  Need = "memfd"   // host memory behind a descriptor
	NeedDMABuf Need = "dma-buf" // device memory exported as a dma-buf
	NeedVMM    Need = "vmm"     // device memory exported by the driver
)

// ProxySite says which process drains the trigger ring of a port channel.
//
// ProxyPlugin: the transport does, in its own process. It implements Proxier, and the
// recipe of a port connection is usually empty.
//
// ProxyRank: the rank does, because only the rank may drive its device. On one stream
// for each connection, it enqueues a copy on the device's copy engine for each put, and
// a store of the next value into the peer's counter for each signal (framework/proxy).
// The transport returns only mappings: Attach over a port connection answers with
// mapping 0, of role RolePeer, which is the memory behind the key, and a step that maps
// it. By the same call the rank reaches the peer's counters, whose memory is
// registered, and its key sent, like any other memory. NewProxy fails with
// ErrUnsupported. A counter belongs to one pair of ranks: the far end is its only
// writer, and counts from 0. A device without a copy engine cannot use such a channel;
// the rank then takes the next transport that both ends have.
type ProxySite string

// Sites of a proxy.
const (
	ProxyNone   ProxySite = ""       // no port channels
	ProxyPlugin ProxySite = "plugin" // the transport's own process: Proxier
	ProxyRank   ProxySite = "rank"   // the rank, by its copy engine: framework/proxy
)

// ImageInfo identifies one loadable image that contains kernels.
type ImageInfo struct {
	ID     string // unique within the transport
	Arch   string // "sm_90", "gfx942", "x86-64-v3"
	Family string // which source it comes from: "collectives", "actor"
	Type   string // element type, or "" for all
	ABI    uint32 // version of handles and entry points: kernel.ABI
	Layout string // of handles and arguments: kernel.Layout; "" when it is not known
	SHA256 string // of the bytes, lower-case hexadecimal; "" when built on this machine
	Bytes  uint64 // 0 when built on this machine
}

// KernelInfo describes one kernel of an image to the algorithm selector.
type KernelInfo struct {
	Collective string   // one of kernellist.Collectives; "" for kernels that are not collectives
	Algorithm  string   // of package collectives, or the transport's own
	Symbol     string   // entry point
	Family     string   // images that contain it: ImageInfo.Family
	Types      []string // element types
	Ops        []string // reductions; empty for none
	Channels   []Kind   // kinds of channel that it uses
	MaxRanks   int      // 0 = any
	MaxThreads int      // per block; 0 = 1024
}
