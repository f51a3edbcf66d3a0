package control

import (
	"fmt"
	"math"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

var ownershipTests = []harness.Test{
	{
		Name: "ownership/borrowed", Rule: "Arguments are lent for the duration of the call; what is kept is duplicated.",
		Body: testBorrowed,
	},
	{
		Name: "ownership/descriptors", Rule: "The life of a link leaves no descriptor and no mapping behind.",
		Body: testDescriptors,
	},
	{
		Name: "ownership/descriptors-after-errors", Rule: "An error hands nothing over and leaves no descriptor behind.",
		Body: testDescriptorsAfterErrors,
	},
}

// testBorrowed closes what a transport was lent as soon as the call is over. It has duplicated the
// descriptors that it needs later.
func testBorrowed(t *harness.T) {
	for _, kind := range t.Claims.Channels {
		ranks, ends := t.Ends(kind)
		r := ranks[0]
		own := r.Registered(r.Alloc(harness.WindowBytes).Segment)
		var keys []framework.Parcel
		for _, peer := range ranks[1:] {
			b := peer.Alloc(harness.WindowBytes)
			reg := peer.Registered(b.Segment)
			_ = framework.Parcel{Shares: b.Segment.Shares}.Close()
			keys = append(keys, reg.Key)
		}
		conn := r.Connected(ends[0].ID, harness.PeersOf(0, ends)...)
		for _, e := range ends {
			_ = e.Address.Close()
		}
		a, err := r.Attach(t.Context(), conn, own.ID, keys)
		if err != nil {
			t.Errorf("%s: attach after what was lent is closed: %v", kind, err)
		}
		for _, k := range keys {
			_ = k.Close()
		}
		for _, s := range harness.SharesOf(a) {
			if s.FD == nil {
				continue
			}
			if _, err := s.FD.Stat(); err != nil {
				t.Errorf("%s: a descriptor of the recipe died with the key it came from: %v", kind, err)
			}
		}
		_ = a.Close()
	}
}

// testDescriptors lives through links many times and counts what is left. The
// collector is off: it would close leaked files and hide the leak.
func testDescriptors(t *harness.T) {
	leaks(t, "the life of a link", func(r []*harness.Rank, kind framework.Kind) {
		liveOnce(t, r, kind, false)
	})
}

// testDescriptorsAfterErrors does the same with calls that fail.
func testDescriptorsAfterErrors(t *harness.T) {
	leaks(t, "failing calls", func(r []*harness.Rank, kind framework.Kind) {
		liveOnce(t, r, kind, true)
	})
}

// leaks runs round many times for each kind of link.
func leaks(t *harness.T, what string, round func(r []*harness.Rank, kind framework.Kind)) {
	for _, kind := range t.Claims.Channels {
		ranks := t.Ranks(len(harness.Members(kind)))
		t.Grows(fmt.Sprintf("%s: %s", kind, what), ranks, func() { round(ranks, kind) })
	}
}

// liveOnce goes through the life of a link without T.Cleanup: what it does not
// close, nobody closes.
func liveOnce(t *harness.T, ranks []*harness.Rank, kind framework.Kind, spoil bool) {
	type made struct {
		end framework.Endpoint
		reg framework.Registration
	}
	all := make([]made, len(ranks))
	for i, r := range ranks {
		mem, err := r.Device.Alloc(harness.WindowBytes)
		if err != nil {
			t.Fatalf("allocate: %v", err)
		}
		shares, err := mem.Export()
		if err != nil {
			t.Fatalf("export: %v", err)
		}
		seg := framework.Segment{Device: r.Device.Info().Device, Shares: shares, Bytes: harness.WindowBytes}
		if all[i].reg, err = r.Register(t.Context(), seg); err != nil {
			t.Fatalf("register: %v", err)
		}
		if spoil {
			seg.Offset = math.MaxUint64
			_, err = r.Register(t.Context(), seg)
			t.WantClass("register beyond the end of memory", err, framework.ErrInvalid)
		}
		_ = framework.Parcel{Shares: shares}.Close()
		_ = mem.Close()
		if all[i].end, err = r.Listen(t.Context(), r.LinkConfig(kind)); err != nil {
			t.Fatalf("listen: %v", err)
		}
		for _, o := range all[i].end.Create {
			object, err := r.Device.Object(o, nil)
			if err != nil {
				t.Fatalf("create an object: %v", err)
			}
			share, err := object.Share()
			if err != nil {
				t.Fatalf("share an object: %v", err)
			}
			all[i].end.Address.Shares = append(all[i].end.Address.Shares, share)
			_ = object.Close()
		}
	}
	for i, r := range ranks {
		var peers []framework.Peer
		var keys []framework.Parcel
		for j := range ranks {
			if j != i {
				peers = append(peers, framework.Peer{Rank: j, Address: all[j].end.Address})
				keys = append(keys, all[j].reg.Key)
			}
		}
		conn, err := r.Connect(t.Context(), all[i].end.ID, peers)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		if spoil {
			bad := append([]framework.Parcel(nil), keys...)
			bad[len(bad)-1].Data = []byte("nonsense")
			_, err := r.Attach(t.Context(), conn, all[i].reg.ID, bad)
			t.WantClass("attach with nonsense", err, framework.ErrPeer, framework.ErrInvalid)
		}
		a, err := r.Attach(t.Context(), conn, all[i].reg.ID, keys)
		if err != nil {
			t.Fatalf("attach: %v", err)
		}
		_ = a.Close()
		if a.ID != 0 {
			r.Release(a.ID)
		}
	}
	for i, r := range ranks {
		_ = all[i].end.Address.Close()
		_ = all[i].reg.Key.Close()
		r.Release(all[i].end.ID) // ends its connections
		r.Release(all[i].reg.ID)
	}
}
