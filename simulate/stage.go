package simulate

import "math"

// resource is what a task occupies.
type resource int

const (
	onLink    resource = iota // of a rank, into the switch of its host
	onNetwork                 // a rank's share of the adapters, and its posting thread
	onReducer                 // a rank's memory system
	resources
)

// work is what one rank does in one stage. Sent and received are at the same time,
// the larger of them counts.
type work struct {
	on             resource
	sent, received float64 // bytes; what a reduction reads and writes is sent
	messages       float64
	packets        bool // stored by kernels with flags inside, never by copy engines
}

// stage is what a rank does at a time. The next stage waits for all of it, and where it crosses the
// network for that of all other ranks.
type stage []work

// block is stages that are repeated, as the steps of a ring are. Hops: each
// repetition is another host's work, so it occupies a resource of its own.
type block struct {
	times  int
	hops   bool
	stages []stage
}

func once(stages ...stage) block { return block{times: 1, stages: stages} }

func link(bytes float64, peers int) stage {
	return stage{{on: onLink, sent: bytes, received: bytes, messages: float64(peers)}}
}

func network(sent, received, messages float64) stage {
	return stage{{on: onNetwork, sent: sent, received: received, messages: messages}}
}

// reduce adds up so many vectors of this many bytes into one.
func reduce(vectors int, bytes float64) stage {
	if vectors < 2 {
		return stage{{on: onReducer}}
	}
	return stage{{on: onReducer, sent: float64(vectors+1) * bytes}}
}

// inPackets is the stage with packets instead of plain bytes.
func (m *Machine) inPackets(s stage) stage {
	out := append(stage(nil), s...)
	for i := range out {
		factor := m.PacketFactor
		switch out[i].on {
		case onReducer:
			continue
		case onNetwork:
			factor = m.NetworkPacketFactor
		}
		out[i].sent, out[i].received, out[i].packets = out[i].sent*factor, out[i].received*factor, true
	}
	return out
}

// cost is how long a rank of a host with so many ranks occupies the resource, and
// how much later the result arrives.
func (m *Machine) cost(w work, ranks int) (occupies, late float64) {
	bytes := max(w.sent, w.received)
	if bytes == 0 && w.messages == 0 {
		return 0, 0
	}
	switch w.on {
	case onLink:
		occupies = max(w.messages*m.LinkOverhead, bytes/(m.LinkBandwidth*1e3))
		if w.packets {
			return occupies, m.LinkLatency
		}
		if m.CopyBandwidth > 0 {
			occupies = min(occupies, bytes/(m.CopyBandwidth*1e3)+m.CopyOverhead)
		}
		return occupies, 2 * m.LinkLatency // the stores arrive, then the signal
	case onNetwork:
		return max(w.messages*m.MessageOverhead, bytes/m.nic(ranks)), m.TriggerLatency + m.NetworkLatency
	}
	return bytes / (m.ReduceBandwidth * 1e3), 0
}

// steps is how many latencies follow each other in blocks: those of links and those
// of the network.
func (m *Machine) steps(blocks []block, ranks int) (links, network int) {
	for _, b := range blocks {
		for _, s := range b.stages {
			var l, n int
			for _, w := range s {
				switch _, late := m.cost(w, ranks); {
				case w.on == onNetwork && w.messages > 0:
					n = 1
				case w.on == onLink && late > 0:
					l = 1
				}
			}
			if n == 1 {
				l = 0 // at the same time as the longer one
			}
			links, network = links+b.times*l, network+b.times*n
		}
	}
	return links, network
}

// sum adds up bytes and messages that a rank sends in blocks, by resource. Of hops, each
// of which is another rank's, the first one counts: no later one has more.
func sum(blocks []block) (bytes, messages [resources]float64) {
	hopped := false
	for _, b := range blocks {
		times := float64(b.times)
		if b.hops {
			if hopped {
				continue
			}
			hopped, times = true, 1
		}
		for _, s := range b.stages {
			for _, w := range s {
				bytes[w.on] += times * w.sent
				messages[w.on] += times * w.messages
			}
		}
	}
	return bytes, messages
}

// log2 is the number of doublings from 1 to n or beyond.
func log2(n int) int { return int(math.Ceil(math.Log2(float64(n)))) }
