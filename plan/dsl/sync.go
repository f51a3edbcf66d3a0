package dsl

import "github.com/mscclpp-go/mscclpp/plan/schema"

// Sync says how a signal, wait, flush or semaphore is ordered with what its thread block does around it.
type Sync uint8

// Joins of the threads of a block. An operation that names none of Before, After and None has both.
const (
	Before  Sync = 1 << iota // join the threads before the operation
	After                    // join the threads after it
	Relaxed                  // signals and waits of memory channels: order execution, not data
	None                     // no join
	Both    = Before | After
)

func syncOf(s []Sync) (joins Sync, relaxed bool) {
	var all Sync
	for _, x := range s {
		all |= x
	}
	if all&(Before|After|None) == 0 {
		return Both, all&Relaxed != 0
	}
	return all & Both, all&Relaxed != 0
}

// Semaphore is a counter of a rank with which its thread blocks wait for each other.
type Semaphore struct {
	Rank, ID int
	p        *Program
}

// Semaphore makes a semaphore of a rank.
func (p *Program) Semaphore(rank, initial int) Semaphore {
	if !p.hasRank(rank) {
		p.fail(RuntimeError, "Source rank %d is out of bounds. Number of ranks: %d", rank, len(p.gpus))
	}
	if p.err != nil {
		return Semaphore{Rank: rank, p: p}
	}
	g := p.gpus[rank]
	g.semaphores = append(g.semaphores, initial)
	return Semaphore{Rank: rank, ID: len(g.semaphores) - 1, p: p}
}

// Acquire waits until the semaphore is above zero and takes one from it.
func (s Semaphore) Acquire(block int, sync ...Sync) { s.add(kAcquire, schema.SemAcquire, block, sync) }

// Release adds one to the semaphore.
func (s Semaphore) Release(block int, sync ...Sync) { s.add(kRelease, schema.SemRelease, block, sync) }

func (s Semaphore) add(k kind, name schema.OpName, block int, sync []Sync) {
	if s.p.err != nil || !s.p.legal(block) {
		return
	}
	joins, _ := syncOf(sync)
	s.p.add(s.Rank, block, &op{kind: k, name: name, ids: []int{s.ID}, sync: joins})
}

// loop collects the operations of a loop.
type loop struct {
	unit, chunks int
	order        []place
	body         map[place][]*op
}

type place struct{ rank, block int }

func (l *loop) add(rank, block int, o *op) {
	at := place{rank, block}
	if _, known := l.body[at]; !known {
		l.order = append(l.order, at)
	}
	l.body[at] = append(l.body[at], o)
}

// Loop repeats what body adds for every unit bytes of the given number of chunks: each round does its unit of every
// operand, so that thread blocks which hand data on with semaphores work as a pipeline.
func (p *Program) Loop(unit, chunks int, body func()) {
	p.BeginLoop(unit, chunks)
	body()
	p.EndLoop()
}

// BeginLoop opens a loop for programs that cannot give its body as a function.
func (p *Program) BeginLoop(unit, chunks int) {
	switch {
	case p.err != nil:
	case p.loop != nil:
		p.fail(RuntimeError, "Nested Pipelines are not Supported.")
	default:
		p.loop = &loop{unit: unit, chunks: chunks, body: map[place][]*op{}}
	}
}

// EndLoop closes the loop that BeginLoop opened.
func (p *Program) EndLoop() {
	l := p.loop
	p.loop = nil
	if l == nil || p.err != nil {
		return
	}
	for _, at := range l.order {
		p.add(at.rank, at.block, &op{kind: kPipeline, name: schema.Pipeline, unit: l.unit, chunks: l.chunks, body: l.body[at]})
	}
}
