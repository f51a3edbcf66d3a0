package transporttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
)

var parcelTests = []test{
	{name: "parcels/addresses", body: testAddresses},
	{name: "parcels/keys", body: testKeys},
	{name: "parcels/another-kind", body: testOtherKind},
}

// mutation is a parcel that a peer's memory, wire or malice made of a good one.
type mutation struct {
	what   string
	parcel framework.Parcel
	may    bool // may pass: a flipped bit can be a legal change
}

const strayShare = "a descriptor of another file"

// mutations are derived from a good parcel; their shares are borrowed from it,
// and from stray, which is a descriptor of another file.
func mutations(good framework.Parcel, stray *os.File) []mutation {
	var all []mutation
	add := func(may bool, data []byte, shares []framework.Share, format string, args ...any) {
		all = append(all, mutation{fmt.Sprintf(format, args...), framework.Parcel{Data: data, Shares: shares}, may})
	}
	n := len(good.Data)
	for cut := 0; cut < n; cut += max(1, n/64) {
		add(false, good.Data[:cut], good.Shares, "cut to %d of %d bytes", cut, n)
	}
	for bit := 0; bit < 8*n; bit += max(1, n/16) {
		data := bytes.Clone(good.Data)
		data[bit/8] ^= 1 << (bit % 8)
		add(true, data, good.Shares, "bit %d flipped", bit)
	}
	if n > 0 {
		add(false, append(bytes.Clone(good.Data), 0), good.Shares, "one byte too long")
		add(false, append(bytes.Clone(good.Data), good.Data...), good.Shares, "twice as long")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 8, n, 4096, 1 << 20} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		add(false, data, good.Shares, "%d foreign bytes", size)
		add(false, make([]byte, size), good.Shares, "%d zero bytes", size)
	}
	if len(good.Shares) > 0 {
		add(false, good.Data, nil, "its shares dropped")
		add(false, good.Data, append(good.Shares[:len(good.Shares):len(good.Shares)], good.Shares[0]), "a share too many")
		other := append([]framework.Share(nil), good.Shares...)
		if other[0].FD != nil {
			other[0].FD = stray
			add(false, good.Data, other, strayShare)
		}
		other = append([]framework.Share(nil), good.Shares...)
		other[0] = framework.Share{Kind: "carrier-pigeon", Blob: []byte("coo")}
		add(false, good.Data, other, "a share of unknown kind")
	}
	return all
}

// stray is a descriptor that no key can mean: an empty pipe.
func (t *T) stray() *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r
}

// testAddresses feeds malformed addresses to Connect. The contract blames the
// peer for them: its address "was not made by a compatible transport".
func testAddresses(t *T) {
	for _, kind := range t.claims.Channels {
		ranks, ends := t.ends(kind)
		r, peers := ranks[len(ranks)-1], peersOf(len(ranks)-1, ends) // the last is not the root
		for _, m := range mutations(peers[0].Address, t.stray()) {
			bad := append([]framework.Peer(nil), peers...)
			bad[0].Address = m.parcel
			id, err := r.Connect(t.ctx, ends[r.n].ID, bad)
			if err == nil {
				r.release(id)
			}
			// What the root appends for its group is the device's, and opaque.
			if err == nil && (m.may || m.what == strayShare && kind == framework.KindSwitch) {
				continue
			}
			t.wantClass(fmt.Sprintf("connect a %s link to an address with %s", kind, m.what), err, framework.ErrPeer, framework.ErrInvalid)
			if t.failed() && framework.Class(err) == framework.ErrPlugin {
				t.Fatalf("the plugin is gone")
			}
		}
		r.release(r.connected(ends[r.n].ID, peers...)) // and it still works
	}
}

// testKeys feeds malformed keys to Attach. One that passes must stay within the
// memory that its descriptor reaches.
func testKeys(t *T) {
	for _, kind := range t.claims.Channels {
		ranks, ends := t.ends(kind)
		r, peers := ranks[len(ranks)-1], peersOf(len(ranks)-1, ends)
		own := r.registered(r.alloc(windowBytes).segment)
		keys := make([]framework.Parcel, len(peers))
		for i := range keys {
			keys[i] = ranks[i].registered(ranks[i].alloc(windowBytes).segment).Key
		}
		conn := r.connected(ends[r.n].ID, peers...)
		for _, m := range mutations(keys[0], t.stray()) {
			bad := append([]framework.Parcel(nil), keys...)
			bad[0] = m.parcel
			a, err := r.Attach(t.ctx, conn, own.ID, bad)
			if err == nil {
				t.withinShares(kind, m.what, a)
				_ = a.Close()
				if a.ID != 0 {
					r.release(a.ID)
				}
			}
			if err == nil && m.may {
				continue
			}
			t.wantClass(fmt.Sprintf("attach over a %s link with a key with %s", kind, m.what), err, framework.ErrPeer, framework.ErrInvalid)
		}
		a, err := r.Attach(t.ctx, conn, own.ID, keys)
		if err != nil {
			t.Errorf("%s: attach with the good keys after the bad ones: %v", kind, err)
		}
		_ = a.Close()
	}
}

// withinShares checks that a mapping ends where its memory does.
func (t *T) withinShares(kind framework.Kind, what string, a framework.Attachment) {
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
func testOtherKind(t *T) {
	r, peer := t.rank(0), t.rank(1)
	key := peer.registered(peer.alloc(4096).segment).Key
	for _, kind := range t.claims.Channels {
		if kind == framework.KindSwitch {
			continue // three members: any pair's address would be too few
		}
		local, _ := r.listening(r.linkConfig(kind))
		_, err := r.Connect(t.ctx, local.ID, []framework.Peer{{Rank: 1, Address: key}})
		t.wantClass(fmt.Sprintf("connect a %s link to a key", kind), err, framework.ErrPeer, framework.ErrInvalid)
		for _, other := range t.claims.Channels {
			if other == kind {
				continue
			}
			remote, _ := peer.listening(peer.linkConfig(other))
			_, err := r.Connect(t.ctx, local.ID, []framework.Peer{{Rank: 1, Address: remote.Address}})
			t.wantClass(fmt.Sprintf("connect a %s link to the address of a %s link", kind, other), err, framework.ErrPeer, framework.ErrInvalid)
		}
	}
}
