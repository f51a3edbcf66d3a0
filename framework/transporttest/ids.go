package transporttest

import (
	"github.com/mscclpp-go/mscclpp/framework"
)

// unknown is an id that no transport has reached.
const unknown = framework.ID(1<<63 + 12345)

// ends returns the endpoints of a link of a kind, one for each member.
func (t *T) ends(kind framework.Kind) ([]*rank, []framework.Endpoint) {
	all := t.ranks(len(members(kind)))
	list := make([]framework.Endpoint, len(all))
	for i, r := range all {
		list[i], _ = r.listening(r.linkConfig(kind))
	}
	return all, list
}

// peersOf lists all ends but that of rank n, in ascending rank.
func peersOf(n int, ends []framework.Endpoint) []framework.Peer {
	var peers []framework.Peer
	for i, e := range ends {
		if i != n {
			peers = append(peers, framework.Peer{Rank: i, Address: e.Address})
		}
	}
	return peers
}

// testUnknownIDs uses ids that were never made, and ids for what they do not name.
func testUnknownIDs(t *T) {
	for _, kind := range t.claims.Channels {
		ranks, ends := t.ends(kind)
		r, peers := ranks[0], peersOf(0, ends)
		reg := r.registered(r.alloc(windowBytes).segment)
		keys := make([]framework.Parcel, len(peers))
		for i := range keys {
			peer := ranks[i+1]
			keys[i] = peer.registered(peer.alloc(windowBytes).segment).Key
		}
		conn := r.connected(ends[0].ID, peers...)

		connect := func(what string, id framework.ID, peers []framework.Peer) {
			_, err := r.Connect(t.ctx, id, peers)
			t.wantClass(kind.String()+": connect "+what, err, framework.ErrInvalid)
		}
		connect("id 0", 0, peers)
		connect("an unknown id", unknown, peers)
		connect("a registration", reg.ID, peers)
		connect("without peers", ends[0].ID, nil)
		connect("with a peer too many", ends[0].ID, append(peers[:len(peers):len(peers)], peers[0]))

		attach := func(what string, conn, local framework.ID, keys []framework.Parcel) {
			a, err := r.Attach(t.ctx, conn, local, keys)
			t.wantClass(kind.String()+": attach "+what, err, framework.ErrInvalid)
			_ = a.Close()
		}
		attach("to id 0", 0, reg.ID, keys)
		attach("to an unknown id", unknown, reg.ID, keys)
		attach("to an endpoint", ends[0].ID, reg.ID, keys)
		attach("with an unknown registration", conn, unknown, keys)
		attach("with an endpoint as registration", conn, ends[0].ID, keys)
		attach("without keys", conn, reg.ID, nil)
		attach("with a key too many", conn, reg.ID, append(keys[:len(keys):len(keys)], keys[0]))
	}
}

// testClose closes everything twice, in the order in which it was not made.
func testClose(t *T) {
	r := t.rank(0)
	for _, id := range []framework.ID{0, 1 << 40, unknown} {
		if err := r.Close(t.ctx, id); err != nil {
			t.Errorf("close of an unknown id: %v: want no error", err)
		}
	}
	for _, kind := range t.claims.Channels {
		ranks, ends := t.ends(kind)
		r := ranks[0]
		reg := r.registered(r.alloc(windowBytes).segment)
		conn := r.connected(ends[0].ID, peersOf(0, ends)...)
		for _, id := range []framework.ID{reg.ID, reg.ID, ends[0].ID, conn, conn, ends[0].ID} {
			if err := r.Close(t.ctx, id); err != nil {
				t.Errorf("%s: close: %v: want no error, however often and in whatever order", kind, err)
			}
		}
	}
}

// testUseAfterClose uses ids after their end. Closing an endpoint ends its
// connections too.
func testUseAfterClose(t *T) {
	for _, kind := range t.claims.Channels {
		ranks, ends := t.ends(kind)
		r, peers := ranks[0], peersOf(0, ends)
		reg := r.registered(r.alloc(windowBytes).segment)
		keys := make([]framework.Parcel, len(peers))
		for i := range keys {
			keys[i] = ranks[i+1].registered(ranks[i+1].alloc(windowBytes).segment).Key
		}
		conn := r.connected(ends[0].ID, peers...)

		r.release(reg.ID)
		a, err := r.Attach(t.ctx, conn, reg.ID, keys)
		t.wantClass(kind.String()+": attach with a closed registration", err, framework.ErrInvalid, framework.ErrClosed)
		_ = a.Close()

		r.release(ends[0].ID)
		a, err = r.Attach(t.ctx, conn, 0, keys)
		t.wantClass(kind.String()+": attach to a connection whose endpoint is closed", err, framework.ErrInvalid, framework.ErrClosed)
		_ = a.Close()
		_, err = r.Connect(t.ctx, ends[0].ID, peers)
		t.wantClass(kind.String()+": connect a closed endpoint", err, framework.ErrInvalid, framework.ErrClosed)
	}
}
