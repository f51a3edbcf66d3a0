package dsl

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// gpu is the program of one rank.
type gpu struct {
	input, output, scratch int
	blocks                 []*block
	types                  []schema.ChannelType // of peers' channels, in order of first use
	memory, port           []int                // the peers of its channels
	switches               []*switchGroup
	remotes                []remoteBuffer
	semaphores             []int
	barriers               [][]int // the blocks of each barrier
}

type switchGroup struct {
	typ   schema.Buffer
	ranks []int
}

// remoteBuffer is a buffer of another rank that this one accesses over channels of the given types.
type remoteBuffer struct {
	rank   int
	typ    schema.Buffer
	access []schema.ChannelType
}

// block is the program of one thread block.
type block struct {
	ops      []*op
	channels []table // by type, in order of first use
	remotes  []table
}

// table translates a block's own numbers, which are positions, to those of the rank.
type table struct {
	channel schema.ChannelType
	ids     []int
}

func (g *gpu) block(n int) *block {
	for len(g.blocks) <= n {
		g.blocks = append(g.blocks, &block{})
	}
	return g.blocks[n]
}

// connect adds a channel to a peer and returns its number.
func (g *gpu) connect(channel schema.ChannelType, peer int) int {
	if !slices.Contains(g.types, channel) {
		g.types = append(g.types, channel)
	}
	peers := &g.memory
	if channel == schema.Port {
		peers = &g.port
	}
	*peers = append(*peers, peer)
	return len(*peers) - 1
}

// barrier numbers the lists of blocks that have met.
func (g *gpu) barrier(blocks []int) int {
	for i, b := range g.barriers {
		if slices.Equal(b, blocks) {
			return i
		}
	}
	g.barriers = append(g.barriers, slices.Clone(blocks))
	return len(g.barriers) - 1
}

// remote returns a block's number of a peer's buffer.
func (g *gpu) remote(block, rank int, typ schema.Buffer, channel schema.ChannelType) int {
	i := slices.IndexFunc(g.remotes, func(r remoteBuffer) bool { return r.rank == rank && r.typ == typ })
	if i < 0 {
		i = len(g.remotes)
		g.remotes = append(g.remotes, remoteBuffer{rank: rank, typ: typ})
	}
	if r := &g.remotes[i]; !slices.Contains(r.access, channel) {
		r.access = append(r.access, channel)
		slices.Sort(r.access)
	}
	return number(&g.block(block).remotes, channel, i)
}

// channel returns a block's number of a channel of the rank.
func (g *gpu) channel(block int, channel schema.ChannelType, id int) int {
	return number(&g.block(block).channels, channel, id)
}

func number(tables *[]table, channel schema.ChannelType, id int) int {
	t := slices.IndexFunc(*tables, func(t table) bool { return t.channel == channel })
	if t < 0 {
		t = len(*tables)
		*tables = append(*tables, table{channel: channel})
	}
	ids := &(*tables)[t].ids
	if i := slices.Index(*ids, id); i >= 0 {
		return i
	}
	*ids = append(*ids, id)
	return len(*ids) - 1
}
