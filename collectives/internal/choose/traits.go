package choose

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Names of algorithms that other packages have to know by name.
const (
	Zerocopy = "zerocopy"
	Push     = "push"
	Pull     = "pull" // reads the memory of the peers' processes
	Shares   = "shares"
	Fetch    = "fetch" // of two ranks
	Chain    = "chain"

	SharesToAll = "shares_to_all" // made of shares of all-reduce

	SwitchZerocopy = "switch_zerocopy"
	Signal         = "signal"

	Chunk      = "chunk"
	Lines      = "ll128" // of messages
	Copy       = "copy"
	CopyStaged = "copy_staged"

	Ports   = "ports"
	Packets = "hierarchical_packets"
	Small   = "hierarchical_small"
	Large   = "hierarchical_large"
	Direct  = "hierarchical_direct"
)

// algorithm is one of those of this module.
type algorithm struct {
	name    string
	of      []collective.Kind
	inputs  []collective.Kind // for which it reaches the inputs of peers where they are
	outputs []collective.Kind // and their outputs
	apart   []collective.Kind // for which input and output must differ
	divided bool              // data passes through the slots of pipes, divided among its lanes
	copies  bool              // copy engines carry it out
	ranks   int               // that it is for; 0: any number
	placed  bool              // the window of a switch reaches those buffers: no address of a peer's is used
	cost    *model.Cost       // nil: the model does not know it
}

func kinds(k ...collective.Kind) []collective.Kind { return k }

var (
	ofMoves     = kinds(collective.AllGather, collective.Broadcast, collective.AllToAll)
	ofSlots     = kinds(collective.AllGather, collective.ReduceScatter, collective.Broadcast, collective.Reduce, collective.AllToAll)
	ofPacked    = kinds(collective.AllGather, collective.ReduceScatter, collective.AllToAll)
	ofRooted    = kinds(collective.Broadcast, collective.Reduce)
	ofSums      = kinds(collective.AllReduce, collective.ReduceScatter, collective.Reduce)
	ofAll       = append(kinds(collective.AllReduce), ofSlots...)
	ofMessages  = kinds(collective.AllToAllV, collective.Gather, collective.Scatter, collective.SendRecv)
	ofPlaced    = kinds(collective.AllReduce, collective.ReduceScatter, collective.AllGather)
	ofAllToAll  = kinds(collective.AllToAll)
	ofAllReduce = kinds(collective.AllReduce)
	ofBarrier   = kinds(collective.Barrier)
)

func join(lists ...[]collective.Kind) []collective.Kind { return slices.Concat(lists...) }

// algorithms are those of this module, on whatever device and over whatever transport: a table is often for several
// kinds of machines, and what one of them lacks is no mistake. Transports may carry others, and programs may add
// their own. The root of a broadcast is read from its output, which all ranks have.
var algorithms = []algorithm{
	{name: "allpair_ll8", of: ofAllReduce, cost: model.OnceByManyWords},
	{name: "allpair_ll16", of: ofAllReduce},
	{name: "allpair_chunk", of: ofAllReduce},
	{name: "twophase_ll8", of: ofAllReduce, cost: model.TwiceByManyWords},
	{name: "twophase_ll16", of: ofAllReduce},
	{name: "twophase_chunk", of: ofAllReduce, cost: model.Stages},
	{name: "switch", of: kinds(collective.AllReduce, collective.ReduceScatter, collective.AllGather, collective.Broadcast, collective.Barrier), cost: model.Switch},
	{name: SwitchZerocopy, of: ofPlaced, inputs: kinds(collective.AllReduce, collective.ReduceScatter), outputs: kinds(collective.AllReduce, collective.AllGather),
		apart: kinds(collective.ReduceScatter, collective.AllGather), placed: true, cost: model.SwitchPlaced},
	{name: "switch_minmax", of: ofAllReduce}, // by name, or by a table: the rows of the model do not tell operations apart
	{name: "switch_packets", of: ofAllReduce, cost: model.SwitchPackets},
	{name: "ring", of: kinds(collective.AllReduce, collective.AllGather)},
	{name: "oneshot_ll8", of: ofAllReduce, cost: model.OnceByWords},
	{name: "oneshot_ll128", of: ofAllReduce, cost: model.OnceByLines},
	{name: "twoshot_ll128", of: kinds(collective.AllReduce, collective.Reduce), cost: model.TwiceByLines},
	{name: "oneshot_lamport", of: ofAllReduce, cost: model.OnceBare},                 // for types with a NaN
	{name: "direct_lamport", of: kinds(collective.ReduceScatter, collective.Reduce)}, // it sends later than the model has it
	{name: "direct_ll8", of: ofSlots, cost: model.OnceByWords},
	{name: "direct_ll128", of: ofSlots, cost: model.OnceByLines},
	{name: "stream_ll128", of: ofAll, cost: model.Stream},
	{name: "ll8", of: ofPacked, cost: model.OnceByManyWords},
	{name: "ll16", of: ofPacked},
	{name: Chunk, of: join(ofSlots, ofMessages), cost: model.Stages},
	{name: Lines, of: ofMessages},
	{name: Zerocopy, of: ofAll, inputs: join(ofSums, kinds(collective.AllGather, collective.AllToAll)),
		outputs: kinds(collective.AllReduce, collective.Broadcast), apart: ofAllToAll, cost: model.Pull},
	{name: Pull, of: kinds(collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Broadcast, collective.AllToAll), apart: ofAllToAll},
	{name: Push, of: ofMoves, outputs: ofMoves, apart: ofAllToAll, cost: model.Push},
	{name: Shares, of: ofAll, divided: true, cost: model.Pipes},
	{name: SharesToAll, of: kinds(collective.Reduce), divided: true, cost: model.PipesToAll},
	{name: Chain, of: ofRooted, divided: true}, // by name, or by a table, until it was measured
	{name: "chain_ll128", of: ofRooted},
	{name: Fetch, of: ofRooted, divided: true, ranks: 2, cost: model.Fetch},
	{name: Copy, of: ofAll, outputs: join(ofAllReduce, ofMoves), apart: ofAllToAll, copies: true, cost: model.Copies},
	{name: CopyStaged, of: join(ofAllReduce, ofMoves), apart: ofAllToAll, copies: true, cost: model.Staged},
	{name: Signal, of: ofBarrier},

	{name: Ports, of: join(ofAll, ofBarrier, ofMessages)},
	{name: Small, of: join(ofAll, ofBarrier)},
	{name: Large, of: ofAll},
	{name: Direct, of: join(ofAll, ofBarrier, ofMessages)},
	{name: Packets, of: kinds(collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Barrier)},
}

// Existing lists the algorithms of this module that rows of a table may name for a collective.
func Existing(k collective.Kind) (names []string) {
	for i := range algorithms {
		if slices.Contains(algorithms[i].of, k) {
			names = append(names, algorithms[i].name)
		}
	}
	return names
}

// Traits are what is known of an algorithm for one collective.
type Traits struct {
	Reach      engine.Reach // which registered buffers of peers it needs
	OutOfPlace bool         // input and output must differ
	LL         bool         // packets for few ranks, with short arguments
	Protocol   Protocol     // of those packets
	Divided    bool         // data passes through the slots of pipes, divided among its lanes
	Copies     bool         // copy engines carry it out
	Placed     bool         // the window of a switch reaches the registered buffers
	Signals    bool         // it lets the next kernel begin at once, and waits for the one before
	Ranks      int          // that it is for; 0: any number
	Cost       *model.Cost  // nil: the model does not know it
}

// TraitsOf looks an algorithm up. One that is not of this module is like those that pass everything through
// scratch, unless its name says that it is for LL packets.
func TraitsOf(name string, k collective.Kind) (t Traits) {
	t.Protocol, t.LL = llProtocol(name)
	i := slices.IndexFunc(algorithms, func(a algorithm) bool { return a.name == name })
	if i < 0 {
		return t
	}
	a := &algorithms[i]
	if slices.Contains(a.inputs, k) {
		t.Reach |= engine.ReachInputs
	}
	if slices.Contains(a.outputs, k) {
		t.Reach |= engine.ReachOutputs
	}
	t.OutOfPlace, t.Signals = slices.Contains(a.apart, k), name == Signal
	t.Divided, t.Copies, t.Ranks, t.Cost, t.Placed = a.divided, a.copies, a.ranks, a.cost, a.placed
	return t
}

// Direct reports whether the kernel moves data between registered buffers itself, by the addresses of peers.
func (t *Traits) Direct() bool { return t.Reach != 0 && !t.Copies && !t.Placed }

// Wide reports whether each block of a launch on a GPU has a lane to itself, however many
// there are.
func (t *Traits) Wide() bool { return t.Direct() || t.Divided }

// Overlaps reports whether the kernel waits itself for the one before on its stream, so that it may begin before that ends.
func (t *Traits) Overlaps() bool { return t.LL || t.Wide() || t.Signals }

// pushes reports whether it only stores to peers.
func (t *Traits) pushes() bool { return t.Reach == engine.ReachOutputs }

// Memories names the registered memories that ranks have to have in common.
func (t *Traits) Memories(in, out uint64) uint64 {
	var id uint64
	if t.Reach&engine.ReachInputs != 0 {
		id = in << 32
	}
	if t.Reach&engine.ReachOutputs != 0 {
		id |= out
	}
	return id
}

// Reaches are the buffers of a collective that have to be registered so that peers reach all that they would:
// those of the algorithm zerocopy.
var Reaches = func() (r [collective.Kinds]engine.Reach) {
	for k := range r {
		r[k] = TraitsOf(Zerocopy, collective.Kind(k)).Reach
	}
	return r
}()
