package harness

import (
	"github.com/mscclpp-go/mscclpp/framework"
)

// Link is a memory or port connection of two ranks, both directions.
type Link struct {
	T     *T
	Ranks [2]*Rank
	Conn  [2]framework.ID
}

// Link connects two ranks by a link of a kind.
func (t *T) Link(kind framework.Kind, a, b *Rank) *Link {
	l := &Link{T: t, Ranks: [2]*Rank{a, b}}
	var ends [2]framework.Endpoint
	for i, r := range l.Ranks {
		ends[i], _ = r.Listening(r.Config(kind, a.N, b.N))
	}
	for i, r := range l.Ranks {
		l.Conn[i] = r.Connected(ends[i].ID, framework.Peer{Rank: l.Ranks[1-i].N, Address: ends[1-i].Address})
	}
	return l
}

// Reach makes the memory behind the key addressable for side i of the link.
func (l *Link) Reach(i int, key framework.Parcel) Window {
	r := l.Ranks[i]
	a, err := r.Attach(l.T.ctx, l.Conn[i], 0, []framework.Parcel{key})
	if err != nil {
		l.T.Fatalf("rank %d: attach: %v", r.N, err)
	}
	p := &RecipeRunner{Rank: r, Meet: NewBarrier(1)}
	for i, w := range p.Perform(a) {
		if a.Mappings[i].Role == framework.RolePeer && w.Mem != nil {
			return w
		}
	}
	l.T.Fatalf("rank %d: the recipe maps no memory of the peer: %+v", r.N, a)
	return Window{}
}

// Shared is memory of rank b that rank a reaches.
func (t *T) Shared(bytes uint64) (owner *Buffer, far Window) {
	l := t.Link(framework.KindMemory, t.Rank(0), t.Rank(1))
	b := l.Ranks[1].Alloc(bytes)
	return b, l.Reach(0, l.Ranks[1].Registered(b.Segment).Key)
}
