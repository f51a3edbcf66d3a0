package model

import "github.com/mscclpp-go/mscclpp/framework/collective"

// Cost is how long an algorithm takes. The table of algorithms has one for each that the model knows.
type Cost struct {
	of     func(l Links, c call) estimate
	serves func(c call) bool // nil: any call
	lines  bool              // stores of 128 bytes must not be torn
	worth  float64           // how many times as long as others it may take; 0: as long
}

// The costs that there are.
var (
	OnceByWords = &Cost{of: func(l Links, c call) estimate {
		return l.packets(c, 1, wordWork, wordPeer, c.once(), wordLoad, c.packetShare())
	}}
	OnceByLines = &Cost{lines: true, of: func(l Links, c call) estimate {
		return l.packets(c, 1, lineWork, linePeer, c.once(), lineLoad, c.packetShare())
	}}
	OnceBare = &Cost{of: func(l Links, c call) estimate {
		return l.packets(c, 1, bareWork, barePeer, c.once(), bareLoad, bareShare)
	}}
	TwiceByLines = &Cost{lines: true, of: func(l Links, c call) estimate {
		return l.packets(c, 2, lineWork, linePeer, c.twice(), lineLoad, packetShare)
	}}
	// The next two are not measured on GPUs.
	OnceByManyWords = &Cost{of: func(l Links, c call) estimate {
		return l.packets(c, 1, manyWork, manyPeer, c.once(), wordLoad, manyShare)
	}}
	TwiceByManyWords = &Cost{of: func(l Links, c call) estimate {
		return l.packets(c, 2, manyWork, manyPeer, c.twice(), wordLoad, manyShare)
	}}
	Stream = &Cost{of: Links.stream, lines: true}
	Push   = &Cost{of: Links.push, serves: func(c call) bool { return !c.sums() }}
	Pull   = &Cost{of: Links.pull, serves: func(c call) bool { return c.Collective != collective.Broadcast }} // that is not measured
	Pipes  = &Cost{of: Links.pipes}
	// The kernel of all-reduce serves a reduce.
	PipesToAll = &Cost{of: func(l Links, c call) estimate {
		c.Collective = collective.AllReduce
		return l.pipes(c)
	}, serves: func(c call) bool { return c.Collective == collective.Reduce }}
	Fetch  = &Cost{of: Links.fetch, serves: func(c call) bool { return c.rooted() && c.Ranks == 2 }}
	Stages = &Cost{of: Links.stages}
	// Not measured: no run has had a switch.
	Switch = &Cost{of: Links.window, serves: func(c call) bool {
		return c.Ranks > 2 && c.Collective != collective.Reduce && c.Collective != collective.AllToAll
	}}
	SwitchPlaced  = &Cost{of: Links.placed, serves: func(c call) bool { return c.Ranks > 2 }}
	SwitchPackets = &Cost{of: Links.windowPackets, serves: func(c call) bool {
		return c.Collective == collective.AllReduce && c.Ranks > 2 && c.Bytes <= mostPackets
	}}
	Copies = &Cost{of: Links.copies, serves: call.pushed, worth: copyWorth}
	Staged = &Cost{of: Links.staged, serves: func(c call) bool {
		return c.pushed() && (c.Collective == collective.AllReduce || !c.sums())
	}}
)

// mostPackets is up to which size the model sends packets through a switch: as far as others do.
const mostPackets = 32 << 10
