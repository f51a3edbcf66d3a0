// Package schema is the file format of execution plans: JSON files that say, for all ranks of a collective, which
// operations each thread block runs. It reads them strictly, writes them, and says what is wrong with one, and where.
//
// The format is that of MSCCL++ 0.9 and 0.10. A plan knows neither addresses nor, within its limits, the size of a
// message; offsets and sizes are in chunks. docs/plans.md describes the fields.
package schema

import "math"

// Plan describes a collective for all of its ranks.
type Plan struct {
	Name       string // the identity: two plans of one name are the same plan
	Collective string // one of allreduce, allgather, reducescatter, alltoall, sendrecv, test, or the author's own name
	Protocol   Protocol

	// InPlace says how the plan is meant to be called. Executors do not depend on it.
	InPlace bool

	// ReuseResources: one registration serves all buffers, and ranks communicate through scratch memory alone.
	ReuseResources bool

	GPUs []GPU // by rank

	ThreadsPerBlock int  // 1 to 1024
	DoubleScratch   bool // launches use the halves of the scratch memory in turn
	Alignment       int  // the granule of all offsets and sizes, in bytes

	// MinSize and MaxSize are the legal sizes of a message, inclusive: of the input, for an all-gather of the output.
	MinSize, MaxSize uint64
}

// The values of fields that a file does not name, and the most threads that a block may have.
const (
	DefaultThreads   = 1024
	DefaultAlignment = 16
	DefaultMaxSize   = uint64(math.MaxUint64)
	MaxThreads       = 1024
)

// Protocol says what scratch memory holds.
type Protocol string

// The protocols: scratch memory of Simple holds data, that of LL packets, which are twice as large.
const (
	Simple Protocol = "Simple"
	LL     Protocol = "LL"
)

// GPU is the part of one rank.
type GPU struct {
	ID                                       int // the rank
	InputChunks, OutputChunks, ScratchChunks int

	Blocks        []Block
	Channels      []Channels
	RemoteBuffers []RemoteBuffer
	Semaphores    []Semaphore
}

// Chunks returns the number of chunks of a buffer.
func (g *GPU) Chunks(b Buffer) int {
	switch b {
	case Input:
		return g.InputChunks
	case Output:
		return g.OutputChunks
	case Scratch:
		return g.ScratchChunks
	}
	return 0
}

// Buffer names a buffer of a rank as files do.
type Buffer string

// The buffers.
const (
	Input   Buffer = "i"
	Output  Buffer = "o"
	Scratch Buffer = "s"
)

// ChannelType is a kind of channel.
type ChannelType string

// The kinds of channels. NoChannel means the same as an absent type.
const (
	Memory    ChannelType = "memory"
	Port      ChannelType = "port"
	Switch    ChannelType = "switch"
	NoChannel ChannelType = "none"
)

// Channels is one entry of a rank's list of channels. All entries of one type together number that type's channels.
type Channels struct {
	Type   ChannelType
	Peers  []int       // of memory and port channels: channel k leads to Peers[k]
	Buffer Buffer      // of switch channels: which buffer of all ranks of a group they reach
	Groups []RankGroup // of switch channels: one channel each
}

// RankGroup is the ranks that share a switch channel.
type RankGroup struct {
	Size  int
	Ranks []int
}

// RemoteBuffer is a buffer of another rank. Its position in the list is its number.
type RemoteBuffer struct {
	Rank   int
	Type   Buffer
	Access []ChannelType
}

// Semaphore counts between thread blocks of a rank, over launches too.
type Semaphore struct{ Init int }

// Block is a thread block: a team of threads that runs the operations in order.
type Block struct {
	ID         int
	Ops        []Op
	Channels   []ChannelRefs
	RemoteRefs []RemoteRefs
}

// ChannelRefs are the channels of one type that a block uses. Operations name positions of this list.
type ChannelRefs struct {
	Type ChannelType
	IDs  []int // into the rank's channels of that type
}

// RemoteRefs are the remote buffers that a block uses through one type of channel. Operations name positions of it.
type RemoteRefs struct {
	Type ChannelType
	IDs  []int // into the rank's RemoteBuffers
}

// ReduceOp is how elements are combined.
type ReduceOp string

// The reductions.
const (
	Sum ReduceOp = "sum"
	Min ReduceOp = "min"
	Max ReduceOp = "max"
)

// Op is an operation. Which fields it has depends on its name.
type Op struct {
	Name OpName

	Src, Dst    []Operand
	ChannelIDs  []int // positions in the block's channels
	ChannelType ChannelType
	Reduce      ReduceOp
	Group       *GroupSlice

	Barrier, Blocks int   // barrier: which one, and how many blocks take part
	Semaphores      []int // sem_acquire, sem_release

	Iter *Iteration // pipeline
	Ops  []Op       // pipeline

	Load *GroupLoad // glre
}

// GroupSlice says that a block does slice ID of Size of every operand.
type GroupSlice struct{ ID, Size int }

// Iteration says how a pipeline cuts up its operands: NumChunks chunks in steps of Unit bytes.
type Iteration struct{ Unit, NumChunks int }

// GroupLoad is the operand form of glre alone: a range of a buffer of all ranks of a switch channel, and where the
// reduced chunks go.
type GroupLoad struct {
	Buffer       Buffer
	Offset, Size int
	Dst          Chunk
}

// Chunk names chunks together with their rank.
type Chunk struct {
	Rank        int
	Buffer      Buffer
	Index, Size int
}

// OperandKind says where an operand lies.
type OperandKind int

// The kinds of operands.
const (
	Local     OperandKind = iota // in a buffer of this rank
	Remote                       // in a remote buffer of the block
	Multicast                    // at the same place of all ranks of a switch channel
)

// Operand is a range of chunks.
type Operand struct {
	Kind        OperandKind
	Buffer      Buffer // of a local operand
	ID          int    // position in the block's remote buffers of the channel's type, or in its switch channels
	Index, Size int    // in chunks
}

// Channel returns the type of the channel, NoChannel for none.
func (o *Op) Channel() ChannelType {
	if o.ChannelType == "" {
		return NoChannel
	}
	return o.ChannelType
}

// Peers returns the ranks to which the channels of type t lead, by number.
func (g *GPU) Peers(t ChannelType) []int {
	var out []int
	for i := range g.Channels {
		if g.Channels[i].Type == t {
			out = append(out, g.Channels[i].Peers...)
		}
	}
	return out
}

// SwitchChannel is one multicast channel of a rank.
type SwitchChannel struct {
	Buffer Buffer
	Ranks  []int
}

// Switches returns the switch channels by number.
func (g *GPU) Switches() []SwitchChannel {
	var out []SwitchChannel
	for i := range g.Channels {
		if c := &g.Channels[i]; c.Type == Switch {
			for _, group := range c.Groups {
				out = append(out, SwitchChannel{c.Buffer, group.Ranks})
			}
		}
	}
	return out
}

// ChannelIDs returns the block's channels of type t: the rank's numbers, by position.
func (b *Block) ChannelIDs(t ChannelType) []int {
	var out []int
	for i := range b.Channels {
		if b.Channels[i].Type == t {
			out = append(out, b.Channels[i].IDs...)
		}
	}
	return out
}

// RemoteIDs returns the block's remote buffers for channels of type t: the rank's numbers, by position.
func (b *Block) RemoteIDs(t ChannelType) []int {
	var out []int
	for i := range b.RemoteRefs {
		if b.RemoteRefs[i].Type == t {
			out = append(out, b.RemoteRefs[i].IDs...)
		}
	}
	return out
}
