package dsl

import "github.com/mscclpp-go/mscclpp/plan/schema"

// The protocols of a plan.
const (
	Simple = schema.Simple // signals order data
	LL     = schema.LL     // packets carry flags; scratch holds packets
)

// Options of a program. The zero value of each field stands for its default.
type Options struct {
	Name            string
	Ranks           int             // default: as many as the collective has
	Protocol        schema.Protocol // Simple or LL; default Simple
	Instances       int             // how often the program is replicated, each instance with its share of every chunk; default 1
	NoFusion        bool            // leave operations as they were written
	NoAutoSync      bool            // insert no joins for data dependencies; those that signals and waits ask for remain
	NoInterleaving  bool            // instances work on the same chunks; without it on alternating ones
	ReuseResources  bool            // one set of buffers and a fixed scratch for all messages
	ThreadsPerBlock int             // default 1024
	DoubleScratch   bool            // launches alternate between halves of the scratch
	Alignment       int             // granule of all sizes in bytes; default 16
	MinSize         uint64          // smallest message in bytes
	MaxSize         uint64          // largest message in bytes; 0 for any
	Upstream        bool            // compile exactly as MSCCL++ does, its mistakes included (see Compile)
}

// The limits of files keep mistyped numbers from filling the memory; no real program comes near them.
var (
	maxRanks     = schema.DefaultLimits.Ranks
	maxBlocks    = schema.DefaultLimits.Blocks
	maxInstances = schema.DefaultLimits.Blocks
	maxChunks    = schema.DefaultLimits.Chunks
)

// Program is a program under construction. One goroutine at a time may use it.
type Program struct {
	collective Collective
	opt        Options
	gpus       []*gpu
	loop       *loop
	pairs      pairing
	err        *Error
}

// New begins a program.
func New(c Collective, opt Options) *Program {
	p := &Program{collective: c, opt: opt}
	if p.opt.Ranks == 0 {
		p.opt.Ranks = len(c.Inputs)
	}
	setDefault(&p.opt.Protocol, Simple)
	setDefault(&p.opt.Instances, 1)
	setDefault(&p.opt.ThreadsPerBlock, schema.DefaultThreads)
	setDefault(&p.opt.Alignment, schema.DefaultAlignment)
	setDefault(&p.opt.MaxSize, schema.DefaultMaxSize)
	p.check()
	for r := range p.opt.Ranks {
		if p.err != nil {
			break
		}
		p.gpus = append(p.gpus, &gpu{input: c.Inputs[r], output: c.Outputs[r]})
	}
	return p
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func (p *Program) check() {
	c, o := &p.collective, &p.opt
	switch {
	case o.Protocol != Simple && o.Protocol != LL:
		p.fail(AssertionError, "Given protocol: %s. Must be either Simple, LL", o.Protocol)
	case o.Ranks < 1 || o.Ranks > maxRanks:
		p.fail(ValueError, "Number of ranks must be between 1 and %d (got %d)", maxRanks, o.Ranks)
	case o.Ranks > len(c.Inputs) || len(c.Inputs) != len(c.Outputs):
		p.fail(IndexError, "The program has %d ranks, its collective input buffers for %d and output buffers for %d", o.Ranks, len(c.Inputs), len(c.Outputs))
	case o.Instances < 1 || o.Instances > maxInstances:
		p.fail(ValueError, "Number of instances must be between 1 and %d (got %d)", maxInstances, o.Instances)
	}
	for r := range c.Inputs {
		if most := max(c.Inputs[r], c.Outputs[r]); p.err == nil && (min(c.Inputs[r], c.Outputs[r]) < 0 || most > maxChunks) {
			p.fail(ValueError, "Buffer size must be between 0 and %d chunks (got %d of input and %d of output for rank %d)", maxChunks, c.Inputs[r], c.Outputs[r], r)
		}
	}
}

// Ranks returns the number of ranks.
func (p *Program) Ranks() int { return p.opt.Ranks }

// ScratchChunks returns how many chunks of scratch a rank has so far.
func (p *Program) ScratchChunks(rank int) int {
	if !p.hasRank(rank) {
		return 0
	}
	return p.gpus[rank].scratch
}

func (p *Program) hasRank(rank int) bool { return rank >= 0 && rank < len(p.gpus) }

// add appends an operation to a block, or to the loop that is open.
func (p *Program) add(rank, block int, o *op) {
	if p.loop != nil {
		p.loop.add(rank, block, o)
		return
	}
	b := p.gpus[rank].block(block)
	b.ops = append(b.ops, o)
}

// legal reports whether a block number can be one, and keeps the mistake if not.
func (p *Program) legal(block int) bool {
	if block >= 0 && block < maxBlocks {
		return true
	}
	p.fail(RuntimeError, "Thread block %d is out of bounds. Thread blocks are numbered from 0 to %d", block, maxBlocks-1)
	return false
}
