// Package benchtest runs the groups that benchmarks and checks are tested on: ranks
// are goroutines, and collectives are done in the plainest way.
package benchtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Hub joins the ranks of one group. It collects the input of all ranks, then each rank
// writes its output; that shares no code with bench.Verifier.
type Hub struct {
	Refuse func(rank int, c *bench.Call) error // before anything is done
	Tamper func(rank int, c *bench.Call)       // after the outputs are written
	Delay  []time.Duration                     // of each rank, in every call
	Calls  []int                               // made so far by each rank

	ranks   int
	mu      sync.Mutex
	arrived int
	round   chan struct{}
	posted  []any
	last    []any
}

// New returns a group of n ranks.
func New(n int) *Hub {
	return &Hub{ranks: n, round: make(chan struct{}), posted: make([]any, n), Calls: make([]int, n), Delay: make([]time.Duration, n)}
}

// meet waits for all ranks and returns what they brought.
func (h *Hub) meet(rank int, value any) []any {
	h.mu.Lock()
	h.posted[rank] = value
	h.arrived++
	round := h.round
	if h.arrived == h.ranks {
		h.last, h.posted = h.posted, make([]any, h.ranks)
		h.arrived, h.round = 0, make(chan struct{})
		close(round)
	}
	h.mu.Unlock()
	<-round
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Member is one rank; it implements bench.Group.
type Member struct {
	hub       *Hub
	rank      int
	Allocated int // registered buffers
}

// Member returns a rank of the group.
func (h *Hub) Member(rank int) *Member { return &Member{hub: h, rank: rank} }

// Rank is this member's, from 0.
func (m *Member) Rank() int { return m.rank }

// Size is the number of members.
func (m *Member) Size() int { return m.hub.ranks }

// Barrier waits for all members.
func (m *Member) Barrier() error { m.hub.meet(m.rank, nil); return nil }

// Algorithms are the same for every collective: there is one.
func (m *Member) Algorithms(bench.Collective) []string { return []string{"plain"} }

// Chosen is that one.
func (m *Member) Chosen(*bench.Call) (string, error) { return "plain", nil }

// Alloc counts what is registered.
func (m *Member) Alloc(bytes int64, registered bool) (bench.Memory, error) {
	if registered {
		m.Allocated++
	}
	return bench.Heap(bytes), nil
}

// Queue is nil: calls are done when they return.
func (m *Member) Queue() bench.Queue { return nil }

// AllGather gives every member the bytes of all.
func (m *Member) AllGather(_ context.Context, b []byte) ([][]byte, error) {
	var all [][]byte
	for _, v := range m.hub.meet(m.rank, slices.Clone(b)) {
		all = append(all, v.([]byte))
	}
	return all, nil
}

// Do runs the collective.
func (m *Member) Do(c *bench.Call) error {
	if m.hub.Refuse != nil {
		if err := m.hub.Refuse(m.rank, c); err != nil {
			return err
		}
	}
	m.hub.Calls[m.rank]++
	time.Sleep(m.hub.Delay[m.rank])
	in, _ := c.Collective.Elements(c.Count, m.hub.ranks, m.rank, c.Root)
	if c.V != nil {
		in, _ = c.V.Totals()
	}
	size := c.Type.Size()
	inputs := m.hub.meet(m.rank, slices.Clone(unsafe.Slice((*byte)(c.In), in*size)))
	blocks := m.hub.meet(m.rank, c.V)
	input := func(r, first, n int) []byte { return inputs[r].([]byte)[first*size : (first+n)*size] }
	put := func(at int, b []byte) { copy(unsafe.Slice((*byte)(unsafe.Add(c.Out, at*size)), len(b)), b) }
	sum := func(first int) []byte {
		out := slices.Clone(input(0, first, c.Count))
		for r := 1; r < m.hub.ranks; r++ {
			add(out, input(r, first, c.Count))
		}
		return out
	}
	switch n := c.Count; c.Collective {
	case bench.AllReduce:
		put(0, sum(0))
	case bench.Reduce:
		if m.rank == c.Root {
			put(0, sum(0))
		}
	case bench.ReduceScatter:
		put(0, sum(m.rank*n))
	case bench.Broadcast:
		put(0, input(c.Root, 0, n))
	case bench.Scatter:
		put(0, input(c.Root, m.rank*n, n))
	case bench.SendRecv:
		put(0, input((m.rank-1+m.hub.ranks)%m.hub.ranks, 0, n))
	default:
		for r := range m.hub.ranks {
			switch {
			case c.Collective == bench.AllGather, c.Collective == bench.Gather && m.rank == c.Root:
				put(r*n, input(r, 0, n))
			case c.Collective == bench.AllToAll:
				put(r*n, input(r, m.rank*n, n))
			case c.Collective == bench.AllToAllV:
				b := blocks[r].(*bench.Blocks)
				put(c.V.RecvDispls[r], input(r, b.SendDispls[m.rank], b.SendCounts[m.rank]))
			}
		}
	}
	if m.hub.Tamper != nil {
		m.hub.Tamper(m.rank, c)
	}
	return nil
}

// add treats both as 32-bit integers.
func add(to, from []byte) {
	for i := 0; i < len(to); i += 4 {
		binary.LittleEndian.PutUint32(to[i:], binary.LittleEndian.Uint32(to[i:])+binary.LittleEndian.Uint32(from[i:]))
	}
}

// Exact is a Reference for sums of 32-bit integers.
type Exact struct{}

// Fill writes integers that depend on the seed, the rank and the place.
func (Exact) Fill(dst []byte, _ kernel.DataType, _ kernel.Op, seed uint64, rank, first int) {
	for i := 0; i < len(dst); i += 4 {
		v := uint32(first+i/4)*2654435761 + uint32(rank)*40503 + uint32(seed)*97 + 1
		binary.LittleEndian.PutUint32(dst[i:], v)
	}
}

// Reduce adds up, whatever the operation.
func (Exact) Reduce(dst []byte, inputs [][]byte, _ kernel.DataType, _ kernel.Op, _ float64) {
	copy(dst, inputs[0])
	for _, in := range inputs[1:] {
		add(dst, in)
	}
}

// Wrong counts elements that differ in any bit.
func (Exact) Wrong(got, want []byte, t kernel.DataType, _ kernel.Op, _ int) int64 {
	n := int64(0)
	for i := 0; i < len(got); i += t.Size() {
		if !bytes.Equal(got[i:i+t.Size()], want[i:i+t.Size()]) {
			n++
		}
	}
	return n
}

// Together runs f on every rank, within a time limit, and reports errors.
func (h *Hub) Together(t *testing.T, f func(m *Member) error) {
	t.Helper()
	errs := make([]error, h.ranks)
	var all sync.WaitGroup
	for r := range h.ranks {
		all.Go(func() { errs[r] = f(h.Member(r)) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the ranks do not finish")
	}
	for r, err := range errs {
		if err != nil {
			t.Error(fmt.Errorf("rank %d: %w", r, err))
		}
	}
}
