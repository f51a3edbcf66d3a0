package control

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// testUnknownIDs uses ids that were never made, and ids for what they do not name.
func testUnknownIDs(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		ranks, ends := t.Ends(kind)
		r, peers := ranks[0], harness.PeersOf(0, ends)
		reg := r.Registered(r.Alloc(harness.WindowBytes).Segment)
		keys := make([]framework.Parcel, len(peers))
		for i := range keys {
			peer := ranks[i+1]
			keys[i] = peer.Registered(peer.Alloc(harness.WindowBytes).Segment).Key
		}
		conn := r.Connected(ends[0].ID, peers...)

		connect := func(what string, id framework.ID, peers []framework.Peer) {
			_, err := r.Connect(t.Context(), id, peers)
			t.WantClass(kind.String()+": connect "+what, err, framework.ErrInvalid)
		}
		connect("id 0", 0, peers)
		connect("an unknown id", harness.Unknown, peers)
		connect("a registration", reg.ID, peers)
		connect("without peers", ends[0].ID, nil)
		connect("with a peer too many", ends[0].ID, append(peers[:len(peers):len(peers)], peers[0]))

		attach := func(what string, conn, local framework.ID, keys []framework.Parcel) {
			a, err := r.Attach(t.Context(), conn, local, keys)
			t.WantClass(kind.String()+": attach "+what, err, framework.ErrInvalid)
			_ = a.Close()
		}
		attach("to id 0", 0, reg.ID, keys)
		attach("to an unknown id", harness.Unknown, reg.ID, keys)
		attach("to an endpoint", ends[0].ID, reg.ID, keys)
		attach("with an unknown registration", conn, harness.Unknown, keys)
		attach("with an endpoint as registration", conn, ends[0].ID, keys)
		attach("without keys", conn, reg.ID, nil)
		attach("with a key too many", conn, reg.ID, append(keys[:len(keys):len(keys)], keys[0]))
	}
}

// testClose closes everything twice, in the order in which it was not made.
func testClose(t *harness.T) {
	r := t.Rank(0)
	for _, id := range []framework.ID{0, 1 << 40, harness.Unknown} {
		if err := r.Close(t.Context(), id); err != nil {
			t.Errorf("close of an unknown id: %v: want no error", err)
		}
	}
	for _, kind := range t.Claims.Channels {
		ranks, ends := t.Ends(kind)
		r := ranks[0]
		reg := r.Registered(r.Alloc(harness.WindowBytes).Segment)
		conn := r.Connected(ends[0].ID, harness.PeersOf(0, ends)...)
		for _, id := range []framework.ID{reg.ID, reg.ID, ends[0].ID, conn, conn, ends[0].ID} {
			if err := r.Close(t.Context(), id); err != nil {
				t.Errorf("%s: close: %v: want no error, however often and in whatever order", kind, err)
			}
		}
	}
}

// testUseAfterClose uses ids after their end. Closing an endpoint ends its
// connections too.
func testUseAfterClose(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		ranks, ends := t.Ends(kind)
		r, peers := ranks[0], harness.PeersOf(0, ends)
		reg := r.Registered(r.Alloc(harness.WindowBytes).Segment)
		keys := make([]framework.Parcel, len(peers))
		for i := range keys {
			keys[i] = ranks[i+1].Registered(ranks[i+1].Alloc(harness.WindowBytes).Segment).Key
		}
		conn := r.Connected(ends[0].ID, peers...)

		r.Release(reg.ID)
		a, err := r.Attach(t.Context(), conn, reg.ID, keys)
		t.WantClass(kind.String()+": attach with a closed registration", err, framework.ErrInvalid, framework.ErrClosed)
		_ = a.Close()

		r.Release(ends[0].ID)
		a, err = r.Attach(t.Context(), conn, 0, keys)
		t.WantClass(kind.String()+": attach to a connection whose endpoint is closed", err, framework.ErrInvalid, framework.ErrClosed)
		_ = a.Close()
		_, err = r.Connect(t.Context(), ends[0].ID, peers)
		t.WantClass(kind.String()+": connect a closed endpoint", err, framework.ErrInvalid, framework.ErrClosed)
	}
}
