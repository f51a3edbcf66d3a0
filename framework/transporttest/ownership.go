package transporttest

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

var ownershipTests = []test{
	{name: "ownership/borrowed", body: testBorrowed},
	{name: "ownership/descriptors", body: testDescriptors},
	{name: "ownership/descriptors-after-errors", body: testDescriptorsAfterErrors},
}

// testBorrowed closes what a transport was lent as soon as the call is over. What
// it needs later it has duplicated.
func testBorrowed(t *T) {
	for _, kind := range t.claims.Channels {
		ranks, ends := t.ends(kind)
		r := ranks[0]
		own := r.registered(r.alloc(windowBytes).segment)
		var keys []framework.Parcel
		for _, peer := range ranks[1:] {
			b := peer.alloc(windowBytes)
			reg := peer.registered(b.segment)
			_ = framework.Parcel{Shares: b.segment.Shares}.Close()
			keys = append(keys, reg.Key)
		}
		conn := r.connected(ends[0].ID, peersOf(0, ends)...)
		for _, e := range ends {
			_ = e.Address.Close()
		}
		a, err := r.Attach(t.ctx, conn, own.ID, keys)
		if err != nil {
			t.Errorf("%s: attach after what was lent is closed: %v", kind, err)
		}
		for _, k := range keys {
			_ = k.Close()
		}
		for _, s := range sharesOf(a) {
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
func testDescriptors(t *T) {
	t.leaks("the life of a link", func(r []*rank, kind framework.Kind) {
		t.liveOnce(r, kind, false)
	})
}

// testDescriptorsAfterErrors does the same with calls that fail.
func testDescriptorsAfterErrors(t *T) {
	t.leaks("failing calls", func(r []*rank, kind framework.Kind) {
		t.liveOnce(r, kind, true)
	})
}

const leakRounds = 12

// leaks runs round many times for each kind of link.
func (t *T) leaks(what string, round func(r []*rank, kind framework.Kind)) {
	for _, kind := range t.claims.Channels {
		ranks := t.ranks(len(members(kind)))
		t.grows(fmt.Sprintf("%s: %s", kind, what), ranks, func() { round(ranks, kind) })
	}
}

// grows runs round many times and compares the tables of descriptors and
// mappings, of this process and of the plugins', before and after.
func (t *T) grows(what string, ranks []*rank, round func()) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	round() // the first may open what stays: sockets, caches
	round()
	before := t.tables(ranks)
	for range leakRounds {
		if round(); t.failed() {
			return
		}
	}
	for name, now := range t.tables(ranks) {
		// A handful can be in flight or belong to the runtime; a leak in each
		// round cannot hide among them.
		if more := now - before[name]; more >= leakRounds/2 {
			t.Errorf("%s leaves %d more %s after %d rounds", what, more, name, leakRounds)
		}
	}
}

// tables counts descriptors and mapped files of every process concerned.
func (t *T) tables(ranks []*rank) map[string]int {
	counts := map[string]int{}
	count := func(who, pid string) {
		if list, err := os.ReadDir("/proc/" + pid + "/fd"); err == nil {
			counts["descriptors of "+who] = len(list)
		}
		if text, err := os.ReadFile("/proc/" + pid + "/maps"); err == nil {
			counts["mappings of "+who] = strings.Count(string(text), "/memfd:")
		}
	}
	count("this process", "self")
	for _, r := range ranks {
		if p := r.side.Process; p != nil {
			count(fmt.Sprintf("the plugin of rank %d", r.n), fmt.Sprint(p.PID))
		}
	}
	return counts
}

// liveOnce goes through the life of a link without T.Cleanup: what it does not
// close, nobody closes.
func (t *T) liveOnce(ranks []*rank, kind framework.Kind, spoil bool) {
	type made struct {
		end framework.Endpoint
		reg framework.Registration
	}
	all := make([]made, len(ranks))
	for i, r := range ranks {
		mem, err := r.device.Alloc(windowBytes)
		if err != nil {
			t.Fatalf("allocate: %v", err)
		}
		shares, err := mem.Export()
		if err != nil {
			t.Fatalf("export: %v", err)
		}
		seg := framework.Segment{Device: r.device.Info().Device, Shares: shares, Bytes: windowBytes}
		if all[i].reg, err = r.Register(t.ctx, seg); err != nil {
			t.Fatalf("register: %v", err)
		}
		if spoil {
			seg.Offset = math.MaxUint64
			_, err = r.Register(t.ctx, seg)
			t.wantClass("register beyond the end of memory", err, framework.ErrInvalid)
		}
		_ = framework.Parcel{Shares: shares}.Close()
		_ = mem.Close()
		if all[i].end, err = r.Listen(t.ctx, r.linkConfig(kind)); err != nil {
			t.Fatalf("listen: %v", err)
		}
		for _, o := range all[i].end.Create {
			object, err := r.device.Object(o, nil)
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
		conn, err := r.Connect(t.ctx, all[i].end.ID, peers)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		if spoil {
			bad := append([]framework.Parcel(nil), keys...)
			bad[len(bad)-1].Data = []byte("nonsense")
			_, err := r.Attach(t.ctx, conn, all[i].reg.ID, bad)
			t.wantClass("attach with nonsense", err, framework.ErrPeer, framework.ErrInvalid)
		}
		a, err := r.Attach(t.ctx, conn, all[i].reg.ID, keys)
		if err != nil {
			t.Fatalf("attach: %v", err)
		}
		_ = a.Close()
		if a.ID != 0 {
			r.release(a.ID)
		}
	}
	for i, r := range ranks {
		_ = all[i].end.Address.Close()
		_ = all[i].reg.Key.Close()
		r.release(all[i].end.ID) // ends its connections
		r.release(all[i].reg.ID)
	}
}
