package control

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

var parcelTests = []harness.Test{
	{
		Name: "parcels/addresses", Rule: "Addresses that the transport did not make are refused as the peer's failure or as invalid.",
		Body: testAddresses,
	},
	{
		Name: "parcels/keys", Rule: "Keys that the transport did not make are refused; one that passes stays within its memory.",
		Body: testKeys,
	},
	{
		Name: "parcels/another-kind", Rule: "A parcel of one kind of link is refused by another.",
		Body: testOtherKind,
	},
}

// testAddresses feeds malformed addresses to Connect. The contract blames the
// peer for them: its address "was not made by a compatible transport".
func testAddresses(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		ranks, ends := t.Ends(kind)
		r, peers := ranks[len(ranks)-1], harness.PeersOf(len(ranks)-1, ends) // the last is not the root
		for _, m := range t.Mutations(peers[0].Address) {
			bad := append([]framework.Peer(nil), peers...)
			bad[0].Address = m.Parcel
			id, err := r.Connect(t.Context(), ends[r.N].ID, bad)
			if err == nil {
				r.Release(id)
			}
			// Bytes that the root appends for its group are the device's, and opaque.
			if err == nil && (m.May || (m.What == harness.ForeignShare || m.What == harness.ShrinkableShare) && kind == framework.KindSwitch) {
				continue
			}
			t.WantClass(fmt.Sprintf("connect a %s link to an address with %s", kind, m.What), err, framework.ErrPeer, framework.ErrInvalid)
			if t.Failed() && framework.Class(err) == framework.ErrPlugin {
				t.Fatalf("the plugin is gone")
			}
		}
		r.Release(r.Connected(ends[r.N].ID, peers...)) // and it still works
	}
}

// testKeys feeds malformed keys to Attach. One that passes must stay within the
// memory that its descriptor reaches.
func testKeys(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		ranks, ends := t.Ends(kind)
		r, peers := ranks[len(ranks)-1], harness.PeersOf(len(ranks)-1, ends)
		own := r.Registered(r.Alloc(harness.WindowBytes).Segment)
		keys := make([]framework.Parcel, len(peers))
		for i := range keys {
			keys[i] = ranks[i].Registered(ranks[i].Alloc(harness.WindowBytes).Segment).Key
		}
		conn := r.Connected(ends[r.N].ID, peers...)
		for _, m := range t.Mutations(keys[0]) {
			bad := append([]framework.Parcel(nil), keys...)
			bad[0] = m.Parcel
			a, err := r.Attach(t.Context(), conn, own.ID, bad)
			if err == nil {
				withinShares(t, kind, m.What, a)
				_ = a.Close()
				if a.ID != 0 {
					r.Release(a.ID)
				}
			}
			if err == nil && m.May {
				continue
			}
			t.WantClass(fmt.Sprintf("attach over a %s link with a key with %s", kind, m.What), err, framework.ErrPeer, framework.ErrInvalid)
		}
		a, err := r.Attach(t.Context(), conn, own.ID, keys)
		if err != nil {
			t.Errorf("%s: attach with the good keys after the bad ones: %v", kind, err)
		}
		_ = a.Close()
	}
}

// withinShares checks that a mapping ends where its memory does.
func withinShares(t *harness.T, kind framework.Kind, what string, a framework.Attachment) {
	for _, m := range a.Mappings {
		for _, s := range m.Shares {
			if s.Kind != framework.ShareMemFD || m.Role != framework.RolePeer {
				continue
			}
			info, err := s.FD.Stat()
			if err != nil {
				t.Errorf("%s key with %s: %v", kind, what, err)
				continue
			}
			if size := uint64(info.Size()); m.Offset > size || m.Bytes > size-m.Offset {
				t.Errorf("a %s key with %s maps %d bytes at %d of a file of %d", kind, what, m.Bytes, m.Offset, size)
			}
		}
	}
}

// testOtherKind connects each kind of link to an address of every other kind, and
// keys where addresses belong.
func testOtherKind(t *harness.T) {
	r, peer := t.Rank(0), t.Rank(1)
	key := peer.Registered(peer.Alloc(4096).Segment).Key
	for _, kind := range t.Claims.Channels {
		if kind == framework.KindSwitch {
			continue // three members: any pair's address would be too few
		}
		local, _ := r.Listening(r.LinkConfig(kind))
		_, err := r.Connect(t.Context(), local.ID, []framework.Peer{{Rank: 1, Address: key}})
		t.WantClass(fmt.Sprintf("connect a %s link to a key", kind), err, framework.ErrPeer, framework.ErrInvalid)
		for _, other := range t.Claims.Channels {
			if other == kind {
				continue
			}
			remote, _ := peer.Listening(peer.LinkConfig(other))
			_, err := r.Connect(t.Context(), local.ID, []framework.Peer{{Rank: 1, Address: remote.Address}})
			t.WantClass(fmt.Sprintf("connect a %s link to the address of a %s link", kind, other), err, framework.ErrPeer, framework.ErrInvalid)
		}
	}
}
