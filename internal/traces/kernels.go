package traces

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Launch is one launch of a kernel, and where its time went. Its pieces may be fewer than add up to that.
type Launch struct {
	Comm                        string
	Number                      uint64 // of the call
	Begin, End                  int64
	Wait, Copy, Reduce, Packets int64
	For                         int // the peer that it waited for longest; -1: it has not waited
}

// Piece is what a kernel did for a while.
type Piece struct {
	Comm       string
	Number     uint64 // of the call
	Name       string // wait, copy, …, or an operation of a plan
	Begin, End int64
	Bytes      uint64
	Peer       int // -1: none
	Block      int // of a plan; -1: it is no operation
	Index      int // of the operation in its list
	Turn       int // of its pipeline

	// Of a wait: when the rank that was waited for sent the signal that ended it; 0: that is not known.
	Sent int64
}

// Sign is what a kernel has sent to a peer: a signal, or data with or without one.
type Sign struct {
	Comm   string
	Number uint64
	Name   string
	At     int64
	Bytes  uint64
	Peer   int

	ends []int64 // waits that it ended
}

const kernelWriter = "kernels of "

// operations are the names of a plan's operations, by number: those of plan/kernels/plan_args.h.
var operations = []string{"nop", "barrier", "signal", "wait", "flush", "acquire", "release", "pipeline", "move", "reduce", "pack", "unpack", "forward", "reduce packets", "await", "put"}

// kernelReader makes launches of the records of kernels.
type kernelReader struct {
	to     *Rank
	clock  observe.Clock
	rankOf func(comm string, rank int) int
	of     map[string]*kernelOf // by communicator
}

// kernelOf is what is known of the kernels of one communicator while their records are read.
type kernelOf struct {
	launch *Launch
	call   uint64
	began  int64                     // when, by the clock of the rank
	last   int64                     // when the piece before ended
	wait   int64                     // when the wait began that goes on; 0: none does
	blocks map[uint16]observe.Record // operations that have begun
}

// add takes a record, if its writer is kernels.
func (b *kernelReader) add(writer string, x *observe.Record) bool {
	comm, found := strings.CutPrefix(writer, kernelWriter)
	if !found {
		return false
	}
	if x.Event == observe.Span|observe.Total {
		b.span(comm, x)
		return true
	}
	k := b.of[comm]
	if k == nil {
		k = &kernelOf{blocks: map[uint16]observe.Record{}}
		b.of[comm] = k
	}
	at := b.clock.To(x.Time)
	_, number := observe.CallOf(x.Call)
	kind := x.Event.Kind()
	piece := Piece{Comm: comm, Number: number, Name: kind.String(), Begin: k.last, End: at, Bytes: x.Bytes, Peer: int(x.Peer), Block: -1}
	if piece.Peer >= 0 {
		piece.Peer = b.rankOf(comm, piece.Peer)
	}
	switch {
	case x.Event == observe.Kernel|observe.Begin:
		k.began = x.Time
		k.launch, k.call, k.last, k.wait = &Launch{Comm: comm, Number: number, Begin: at, For: framework.NoPeer}, x.Call, at, 0
	case x.Event == observe.Kernel|observe.End:
		if k.launch != nil && k.call == x.Call {
			k.launch.End = at
			k.launch.scale(x.Time - k.began)
			b.to.Launches = append(b.to.Launches, *k.launch)
		}
		k.launch, k.last, k.wait = nil, 0, 0
	case kind >= observe.Executor:
		b.operation(k, x, piece)
	case x.Event.Phase() == observe.Total:
		if k.launch != nil && k.call == x.Call {
			k.launch.add(kind, x.Time, piece.Peer)
		}
	case x.Event.Phase() == observe.Instant:
		b.to.Signs = append(b.to.Signs, Sign{Comm: comm, Number: number, Name: piece.Name, At: at, Bytes: x.Bytes, Peer: piece.Peer})
	case x.Event == observe.Wait|observe.Begin:
		k.wait = at
	case x.Event == observe.Wait|observe.End:
		if k.wait != 0 {
			piece.Begin = k.wait
			b.to.Pieces = append(b.to.Pieces, piece)
		}
		k.wait, k.last = 0, at
	default: // records of which the one before was lost say nothing of when they began
		if x.Event.Phase() == observe.End && k.launch != nil && k.call == x.Call && k.last != 0 {
			b.to.Pieces = append(b.to.Pieces, piece)
		}
		k.last = at
	}
	return true
}

// span takes a record of one.
func (b *kernelReader) span(comm string, x *observe.Record) {
	s := Span{Comm: comm, Begin: b.clock.To(x.Time), End: b.clock.To(x.Time + int64(x.Bytes)), Late: framework.NoPeer}
	_, s.Number = observe.CallOf(x.Call)
	s.Stream, s.Graph, s.Off = x.Spanned()
	b.to.Spans = append(b.to.Spans, s)
}

// scale turns sums by the clock of the rank, by which the launch took so long, into those of the trace's clock.
func (l *Launch) scale(took int64) {
	if took <= 0 || took == l.End-l.Begin {
		return
	}
	for _, part := range []*int64{&l.Wait, &l.Copy, &l.Reduce, &l.Packets} {
		*part = int64(float64(*part) / float64(took) * float64(l.End-l.Begin))
	}
}

func (l *Launch) add(kind observe.Event, took int64, peer int) {
	switch kind {
	case observe.Wait:
		l.Wait, l.For = l.Wait+took, peer
	case observe.Copy:
		l.Copy += took
	case observe.Reduce:
		l.Reduce += took
	case observe.Packets:
		l.Packets += took
	}
}

// operation takes a record of an operation of a plan. At its begin it has its number, and the turn of its pipeline, in place of bytes.
func (b *kernelReader) operation(k *kernelOf, x *observe.Record, piece Piece) {
	if x.Event.Phase() == observe.Begin {
		k.blocks[x.Block] = *x
		return
	}
	from, known := k.blocks[x.Block]
	if !known || from.Event.Kind() != x.Event.Kind() || from.Call != x.Call {
		return
	}
	delete(k.blocks, x.Block)
	n := int(x.Event.Kind()-observe.Executor) >> 2
	if n >= len(operations) {
		return
	}
	piece.Name, piece.Begin, piece.Block = operations[n], b.clock.To(from.Time), int(x.Block)
	piece.Index, piece.Turn = int(uint32(from.Bytes)), int(from.Bytes>>32)
	b.to.Pieces = append(b.to.Pieces, piece)
}

// meant is whom the signs of a call are for.
type meant struct {
	comm     string
	number   uint64
	from, to int
}

// joinKernels finds for each wait of a kernel the sign that ended it: the last one of the peer in the same call.
func (t *Trace) joinKernels() {
	signs := map[meant][]*Sign{}
	for _, r := range t.Ranks {
		slices.SortStableFunc(r.Launches, func(a, b Launch) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortStableFunc(r.Pieces, func(a, b Piece) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortStableFunc(r.Signs, func(a, b Sign) int { return cmp.Compare(a.At, b.At) })
		for i := range r.Signs {
			s := &r.Signs[i]
			s.ends = nil
			at := meant{s.Comm, s.Number, r.Rank, s.Peer}
			signs[at] = append(signs[at], s)
		}
	}
	for _, r := range t.Ranks {
		for i := range r.Pieces {
			p := &r.Pieces[i]
			p.Sent = 0
			if p.Name != "wait" || p.Peer < 0 {
				continue
			}
			list := signs[meant{p.Comm, p.Number, p.Peer, r.Rank}]
			n, _ := slices.BinarySearchFunc(list, p.End, func(s *Sign, at int64) int {
				if s.At <= at {
					return -1
				}
				return 1
			})
			if n > 0 {
				p.Sent = list[n-1].At
				list[n-1].ends = append(list[n-1].ends, p.End)
			}
		}
	}
}

// KernelTime is where the kernels of a rank spent their time.
type KernelTime struct {
	Rank     int   `json:"rank"`
	Launches int   `json:"launches"`
	Took     int64 `json:"took_ns"`
	Wait     int64 `json:"wait_ns"`
	Copy     int64 `json:"copy_ns"`
	Reduce   int64 `json:"reduce_ns"`
	Packets  int64 `json:"packets_ns"`
	For      int   `json:"waits_for"` // the rank that they waited for longest, or -1
	ForTook  int64 `json:"waits_for_ns"`
}

// kernelTime is empty where there are no records of kernels.
func kernelTime(r *Rank) []KernelTime {
	x := KernelTime{Rank: r.Rank, For: framework.NoPeer}
	for i := range r.Launches {
		l := &r.Launches[i]
		x.Launches++
		x.Took += l.End - l.Begin
		x.Wait, x.Copy, x.Reduce, x.Packets = x.Wait+l.Wait, x.Copy+l.Copy, x.Reduce+l.Reduce, x.Packets+l.Packets
	}
	waits, written, all := map[int]int64{}, map[meeting]int64{}, int64(0)
	for i := range r.Pieces {
		if p := &r.Pieces[i]; p.Name == "wait" && p.Block < 0 && p.Peer >= 0 {
			waits[p.Peer] += p.End - p.Begin
			all += p.End - p.Begin
			written[meeting{p.Comm, p.Number}] += p.End - p.Begin
		}
	}
	for i := range r.Launches { // and those that are in sums alone
		l := &r.Launches[i]
		at := meeting{l.Comm, l.Number}
		rest := l.Wait - written[at]
		written[at] = max(0, -rest)
		if l.For >= 0 && rest > 0 {
			waits[l.For] += rest
		}
	}
	for _, peer := range slices.Sorted(maps.Keys(waits)) {
		if waits[peer] > x.ForTook {
			x.For, x.ForTook = peer, waits[peer]
		}
	}
	if len(r.Launches) == 0 { // as on GPUs, of whose kernels long waits alone are seen
		x.Wait = all
	}
	if x.Launches == 0 && all == 0 {
		return nil
	}
	return []KernelTime{x}
}
