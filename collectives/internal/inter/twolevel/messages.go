package twolevel

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// An all-to-all-v in two levels. The data that a host has for another goes bundled if it is little,
// and directly if it is much. Each host finds that out by itself: what its ranks send to the other
// is exchanged inside, and so is what its ranks expect from there. Where the two differ the answers
// may differ too, and then the first piece that meets is not the one expected.
//
// Data that ranks of one host have for each other never leaves it.

// counts are the lengths that all ranks of a host were called with, in bytes.
type counts struct {
	words []uint64
	ranks int
}

// sent is what rank k of the host sends, expected what it expects from a rank.
func (l counts) sent(k, to int) uint64       { return l.words[2*k*l.ranks+to] }
func (l counts) expected(k, from int) uint64 { return l.words[(2*k+1)*l.ranks+from] }

// few reports whether what goes from m ranks to each of some others is few bytes.
func few(of func(from, to int) uint64, m, others int, most uint64) bool {
	for to := range others {
		left := most
		for from := range m {
			n := of(from, to)
			if n > left {
				return false
			}
			left -= n
		}
	}
	return true
}

// exchangeV is an all-to-all-v under way. The first half of list are sends, by rank, the
// second what is expected.
type exchangeV struct {
	*Engine
	list     []kernelargs.Transfer
	lengths  counts
	out, in  []bool // by host: what goes there, and comes from there, is bundled
	sent     []byte // bundles of this rank's data, for the others of its host to send
	received []byte // and of theirs, for this rank to send
	from     []uint64
}

// Takes reports whether the engine performs a group: an all-to-all-v by itself. One whose
// caller named an algorithm it does not.
func (h *Engine) Takes(g *engine.Group) bool {
	return g.By == nil && g.Kind == collective.AllToAllV && len(g.List) == 2*h.Ranks()
}

// Exchange performs an all-to-all-v.
func (h *Engine) Exchange(g *engine.Group) error {
	s := h.session
	return s.Do(func() error {
		s.Counted()
		s.Lanes.Call = kernelargs.Signature{Sequence: s.Calls(), Collective: uint32(collective.AllToAllV), Algorithm: kernelargs.NameID(crosshost.NameSmall)}
		return s.Run(func(ctx context.Context) error {
			x := &exchangeV{Engine: h, list: g.List, out: make([]bool, len(h.Hosts)), in: make([]bool, len(h.Hosts))}
			return lifetime.Abandon(s.Comm, x.perform(ctx))
		})
	})
}

func (x *exchangeV) perform(ctx context.Context) error {
	if err := x.gatherLengths(); err != nil {
		return err
	}
	n := len(x.Local)
	most := min(crosshost.MostBundled, x.Lanes.Piece-min(x.Lanes.Piece, 8*uint64(1+x.Most)))
	var direct []kernelargs.Transfer
	for _, received := range []bool{false, true} { // as Transfers are sorted
		for g, ranks := range x.Hosts {
			if g == x.Host {
				continue
			}
			bundled, list := x.out, x.list[:n]
			if received {
				bundled, list = x.in, x.list[n:]
				bundled[g] = few(func(k, i int) uint64 { return x.lengths.expected(i, ranks[k]) }, len(ranks), x.Size(), most)
			} else {
				bundled[g] = few(func(k, i int) uint64 { return x.lengths.sent(k, ranks[i]) }, x.Size(), len(ranks), most)
			}
			if bundled[g] {
				continue
			}
			for _, r := range ranks {
				direct = append(direct, list[r])
			}
		}
	}
	if len(direct) == 0 {
		return x.bundles(ctx)
	}
	var both sync.WaitGroup
	var failed error
	both.Go(func() { failed = x.Lanes.Exchange(ctx, direct) })
	err := lifetime.Abandon(x.Lanes.Comm, x.bundles(ctx)) // ends the other half as well
	both.Wait()
	if err == nil {
		err = failed
	}
	return err
}

// gatherLengths gathers the lengths of the ranks of this host, and compares those that meet.
func (x *exchangeV) gatherLengths() error {
	n, m := len(x.Local), x.Size()
	own := make([]uint64, 2*n)
	for i, t := range x.list {
		own[i] = t.Bytes
	}
	x.lengths = counts{make([]uint64, 2*n*m), n}
	if err := x.inside.AllGather(unsafe.Pointer(&own[0]), unsafe.Pointer(&x.lengths.words[0]), 2*n, kernel.Uint64); err != nil {
		return err
	}
	ranks := x.Hosts[x.Host]
	for k, from := range ranks {
		for i, to := range ranks {
			if sent, expected := x.lengths.sent(k, to), x.lengths.expected(i, from); sent != expected {
				return unequalLengths(from, to, sent, expected)
			}
		}
	}
	return nil
}

func unequalLengths(from, to int, sent, expected uint64) error {
	return &framework.Error{Op: "message", Peer: from,
		Err: fmt.Errorf("%w: its message to rank %d has a length of %d bytes: expected %d as that rank receives", framework.ErrInvalid, to, sent, expected)}
}

// bundles takes everything but what goes directly through both levels.
func (x *exchangeV) bundles(ctx context.Context) error {
	if err := x.collect(); err != nil {
		return err
	}
	if err := x.post(ctx); err != nil {
		return err
	}
	return x.OtherHosts(func(g int) error {
		if !x.in[g] {
			return nil
		}
		return x.take(ctx, g)
	})
}

// bundledFor calls f for the ranks for which a rank of this host collects.
func (x *exchangeV) bundledFor(index int, f func(rank int)) {
	_ = x.Rounds(func(g, first int) error {
		if x.out[g] && first+index < len(x.Hosts[g]) {
			f(x.Hosts[g][first+index])
		}
		return nil
	})
}

// bundle is how much rank k has for what another one sends.
func (x *exchangeV) bundle(k, index int) (bytes uint64) {
	x.bundledFor(index, func(rank int) { bytes += x.lengths.sent(k, rank) })
	return bytes
}

// collect exchanges inside what is for ranks of this host, and what each of them sends
// for all.
func (x *exchangeV) collect() error {
	n, m := len(x.Local), x.Size()
	x.from = make([]uint64, m+1) // where the bundles of each begin
	all := uint64(0)
	for k := range m {
		x.from[k+1] = x.from[k] + x.bundle(k, x.Index)
		all += x.bundle(x.Index, k)
	}
	x.sent, x.received = x.Spaces[crosshost.SpacePadded].Bytes(all), x.Spaces[crosshost.SpaceBlock].Bytes(x.from[m])
	var list []kernelargs.Transfer
	message := func(k int, receive uint32, b []byte) {
		if len(b) > 0 {
			list = append(list, kernelargs.Transfer{Buffer: uintptr(lanes.PointerTo(b)), Bytes: uint64(len(b)), Peer: uint32(k), Receive: receive})
		}
	}
	at := uint64(0)
	for k, rank := range x.Hosts[x.Host] {
		begin := at
		x.bundledFor(k, func(to int) { at += uint64(copy(x.sent[at:], x.data(to))) })
		ours := x.received[x.from[k]:x.from[k+1]]
		if k == x.Index {
			copy(ours, x.sent[begin:at])
			copy(x.data(n+rank), x.data(rank))
			continue
		}
		message(k, 0, x.data(rank))
		message(k, 0, x.sent[begin:at])
		message(k, 1, x.data(n+rank))
		message(k, 1, ours)
	}
	return x.inside.Messages(0, list)
}

// data is the memory of a message.
func (x *exchangeV) data(number int) []byte {
	t := x.list[number]
	return lanes.View(kernelargs.At(t.Buffer), t.Bytes)
}

// post sends the bundles: the lengths of all ranks of the host, so that a rank that expects another
// one knows from whom, and the data.
func (x *exchangeV) post(ctx context.Context) error {
	m := x.Size()
	next := append([]uint64(nil), x.from[:m]...)
	var failed error
	x.bundledFor(x.Index, func(rank int) {
		bytes := 8 * uint64(m)
		for k := range m {
			bytes += x.lengths.sent(k, rank)
		}
		if failed != nil {
			return
		}
		failed = x.Lanes.Write(ctx, rank, bytes+8, func(room []byte) {
			binary.LittleEndian.PutUint64(room, uint64(m)) // no single message begins like that: none has 16 bytes in front
			at := 8 + 8*uint64(m)
			for k := range m {
				length := x.lengths.sent(k, rank)
				binary.LittleEndian.PutUint64(room[8+8*k:], length)
				at += uint64(copy(room[at:], x.received[next[k]:][:length]))
				next[k] += length
			}
		})
	})
	return failed
}

// take receives the bundle of a host.
func (x *exchangeV) take(ctx context.Context, g int) error {
	ranks, n := x.Hosts[g], len(x.Local)
	var wrong error
	err := x.Lanes.Take(ctx, x.Counterpart(g), lanes.AnyBytes, func(b []byte) {
		place := func(k int) []byte { return x.data(n + ranks[k]) }
		other, sent, ok := openBundle(b, len(ranks), place)
		switch {
		case !ok:
			wrong = x.unbundled(g, b)
		case other >= 0:
			wrong = unequalLengths(ranks[other], x.Rank, sent, uint64(len(place(other))))
		}
	})
	if err != nil {
		return err
	}
	return wrong
}

// openBundle copies the messages of a bundle to their places. It returns the first one
// that has another length than its place, and that length, or -1; not ok: b is no bundle
// of so many.
func openBundle(b []byte, messages int, place func(k int) []byte) (other int, sent uint64, ok bool) {
	at := 8 + 8*messages
	if len(b) < at || binary.LittleEndian.Uint64(b) != uint64(messages) {
		return -1, 0, false
	}
	for k := range messages {
		to := place(k)
		sent := binary.LittleEndian.Uint64(b[8+8*k:])
		if sent != uint64(len(to)) {
			return k, sent, true
		}
		if uint64(len(b)-at) < sent {
			return -1, 0, false
		}
		at += copy(to, b[at:])
	}
	return -1, 0, true
}

// unbundled is the error for a piece that is no bundle, as where a host sends more than
// this one expects of it.
func (x *exchangeV) unbundled(g int, b []byte) error {
	expected := uint64(0)
	for k := range x.Size() {
		for _, r := range x.Hosts[g] {
			expected += x.lengths.expected(k, r)
		}
	}
	return &framework.Error{Op: "message", Peer: x.Counterpart(g), Err: fmt.Errorf(
		"%w: a piece of %d bytes that is no bundle: expected one, since ranks %v, its host, are to send %d bytes to this one, and that is few for each", framework.ErrInvalid, len(b), x.Hosts[g], expected)}
}
