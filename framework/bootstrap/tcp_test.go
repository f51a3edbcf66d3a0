package bootstrap

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/fdpass"
)

// joinAll joins n ranks of one process over TCP, closed with the test. edit
// changes the configuration of each.
func joinAll(t testing.TB, n int, edit func(c *Config)) []*TCP {
	t.Helper()
	ranks, errs := tryJoin(t, n, edit)
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return ranks
}

// tryJoin is joinAll for jobs that may fail.
func tryJoin(t testing.TB, n int, edit func(c *Config)) ([]*TCP, []error) {
	t.Helper()
	return tryJoinUntil(context.Background(), t, n, edit)
}

// tryJoinUntil is tryJoin with a rank 0 that waits for the others until a context ends.
func tryJoinUntil(end context.Context, t testing.TB, n int, edit func(c *Config)) ([]*TCP, []error) {
	t.Helper()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ranks, errs := make([]*TCP, n), make([]error, n)
	var group sync.WaitGroup
	for r := range n {
		c := Config{Rank: r, Size: n, ID: id, Timeout: patience}
		ctx := context.Background()
		if r == 0 {
			ctx, c.Listener = end, l
		}
		if edit != nil {
			edit(&c)
		}
		group.Go(func() { ranks[r], errs[r] = Join(ctx, c) })
	}
	group.Wait()
	t.Cleanup(func() { closeAll(ranks) })
	return ranks, errs
}

func closeAll(ranks []*TCP) {
	var group sync.WaitGroup
	for _, r := range ranks {
		if r != nil {
			group.Go(func() { _ = r.Close() })
		}
	}
	group.Wait()
}

func asRanks(ts []*TCP) []rank {
	out := make([]rank, len(ts))
	for i, t := range ts {
		out[i] = t
	}
	return out
}

// Everything that holds for ranks of one process holds over TCP.
func TestTCPBehavesAsLocal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		n   int
		run func(t *testing.T, ranks []rank)
	}{
		"order":    {2, testOrderPerTag},
		"borrows":  {2, testSendBorrows},
		"misuse":   {2, testMisuse},
		"context":  {2, testRecvEndsWithContext},
		"parcels":  {5, testAllGatherParcels},
		"announce": {4, func(t *testing.T, ranks []rank) { testAnnounce(t, ranks, framework.NoPeer) }},
		"blame":    {4, func(t *testing.T, ranks []rank) { testAnnounce(t, ranks, 1) }},
		"leave":    {3, testLeave},
		"far":      {11, testLeaveFar},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, asRanks(joinAll(t, test.n, nil))) })
	}
}

// A rank without a link to the one that leaves learns of it as well.
func testLeaveFar(t *testing.T, ranks []rank) {
	far := -1
	neighborRanks := map[int]bool{0: true}
	for _, r := range neighbors(0, len(ranks)) {
		neighborRanks[r] = true
	}
	for r := range ranks {
		if !neighborRanks[r] {
			far = r
		}
	}
	ctx := bounded(t, patience)
	got := make(chan error, 1)
	go func() {
		_, err := ranks[0].Recv(ctx, far, 1)
		got <- err
	}()
	timer := time.NewTimer(2 * watchDelay) // let it watch
	<-timer.C
	_ = ranks[far].Close()
	if err := wantError(<-got, framework.ErrPeer, far, "left"); err != nil {
		t.Error(err)
	}
	// And one that asks afterwards.
	_, err := ranks[1].Recv(ctx, far, 1)
	if err := wantError(err, framework.ErrPeer, far, "left"); err != nil {
		t.Error(err)
	}
	if err := wantError(ranks[2].Send(ctx, far, 1, framework.Parcel{}), framework.ErrPeer, far, "left"); err != nil {
		t.Error(err)
	}
	if err := ranks[0].Err(); err != nil {
		t.Errorf("an orderly goodbye ended the job: %v", err)
	}
}

// A rank that dropped a connection to make room for others has not gone: the peer calls again.
func TestLinkAfterADrop(t *testing.T) {
	t.Parallel()
	const n, far = 11, 5
	ranks := joinAll(t, n, nil)
	if slices.Contains(neighbors(0, n), far) {
		t.Fatalf("ranks 0 and %d are linked from the start", far)
	}
	l, err := listen(t.Context(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := ranks[0]
	b.mu.Lock()
	there := netip.AddrPortFrom(b.table[far].addr(b.root).Addr(), b.table[far].port).String()
	b.table[far].port = addrPort(l.Addr()).Port()
	b.mu.Unlock()
	go func() { // drops the first connection, and brings the second to the rank
		for i := range 2 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if i == 0 {
				_ = c.Close()
				continue
			}
			rank, err := net.Dial("tcp", there)
			if err != nil {
				return
			}
			defer rank.Close()
			go func() { _, _ = io.Copy(rank, c) }()
			_, _ = io.Copy(c, rank)
		}
	}()
	ctx := bounded(t, patience)
	if err := b.Send(ctx, far, 1, framework.Parcel{Data: []byte("on the second try")}); err != nil {
		t.Fatal(err)
	}
	if p, err := ranks[far].Recv(ctx, 0, 1); err != nil || string(p.Data) != "on the second try" {
		t.Errorf("%q, %v", p.Data, err)
	}
}

// Between any pair, with and without a link from the start, many at once.
func TestAllPairs(t *testing.T) {
	const n, count = 14, 20
	ranks := joinAll(t, n, nil)
	share := fdShare(t, "pair")
	ctx := bounded(t, patience)
	each(t, ranks, func(b *TCP) error {
		var group sync.WaitGroup
		errs := make(chan error, 2*n)
		for other := range n {
			group.Go(func() {
				for i := range count {
					p := framework.Parcel{Data: fmt.Appendf(nil, "%d to %d: %d", b.Rank(), other, i)}
					if i%4 == 0 {
						p.Shares = []framework.Share{share, {Kind: "v", Blob: []byte{1}}, share}
					}
					if err := b.Send(ctx, other, 5, p); err != nil {
						errs <- err
						return
					}
				}
			})
			group.Go(func() {
				for i := range count {
					p, err := b.Recv(ctx, other, 5)
					if err != nil {
						errs <- err
						return
					}
					if want := fmt.Sprintf("%d to %d: %d", other, b.Rank(), i); string(p.Data) != want {
						errs <- fmt.Errorf("got %q, expected %q", p.Data, want)
					}
					if i%4 == 0 {
						if text, err := content(p.Shares[2]); text != "pair" {
							errs <- fmt.Errorf("descriptor leads to %q (%v)", text, err)
						}
					}
					_ = p.Close()
				}
			})
		}
		group.Wait()
		select {
		case err := <-errs:
			return err
		default:
			return nil
		}
	})
}

// More descriptors than one message takes, to a rank that reads late.
func TestManyDescriptors(t *testing.T) {
	before := openFDs(t)
	ranks := joinAll(t, 2, nil)
	ctx := bounded(t, patience)
	var p framework.Parcel
	for i := range 3*fdpass.PerMessage + 5 {
		p.Shares = append(p.Shares, fdShare(t, fmt.Sprint("number ", i)))
	}
	for range 3 {
		if err := ranks[0].Send(ctx, 1, 1, p); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the third is left to Close
		got, err := ranks[1].Recv(ctx, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range got.Shares {
			if text, err := content(s); text != fmt.Sprint("number ", i) {
				t.Fatalf("share %d leads to %q (%v)", i, text, err)
			}
		}
		_ = got.Close()
	}
	_ = p.Close()
	closeAll(ranks)
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestLargeParcel(t *testing.T) {
	ranks := joinAll(t, 2, nil)
	ctx := bounded(t, patience)
	data := make([]byte, MaxData)
	data[MaxData-1] = 7
	each(t, ranks, func(b *TCP) error {
		if b.Rank() == 0 {
			return b.Send(ctx, 1, 1, framework.Parcel{Data: data})
		}
		p, err := b.Recv(ctx, 0, 1)
		if err == nil && (len(p.Data) != MaxData || p.Data[MaxData-1] != 7) {
			err = fmt.Errorf("%d bytes", len(p.Data))
		}
		return err
	})
}

// Hosts are kept apart, and descriptors stay on theirs.
func TestSeveralHosts(t *testing.T) {
	ranks := joinAll(t, 6, func(c *Config) { c.HostID = fmt.Sprint("host ", c.Rank%2) })
	ctx := bounded(t, patience)
	share := fdShare(t, "here")
	each(t, ranks, func(b *TCP) error {
		if got, want := fmt.Sprint(b.HostRanks()), fmt.Sprint([]int{b.Rank() % 2, b.Rank()%2 + 2, b.Rank()%2 + 4}); got != want {
			return fmt.Errorf("ranks of this host: %s, expected %s", got, want)
		}
		all, err := AllGather(ctx, b, 1, framework.Parcel{Shares: []framework.Share{share, {Kind: "v", Blob: []byte{1}}}})
		if err != nil {
			return err
		}
		for r, p := range all {
			defer p.Close()
			want := 1
			if b.SameHost(r) {
				want = 2
			}
			if len(p.Shares) != want || p.Shares[want-1].Kind != "v" {
				return fmt.Errorf("%d shares from rank %d, expected %d", len(p.Shares), r, want)
			}
		}
		return nil
	})
}

func TestSingleRank(t *testing.T) {
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Join(context.Background(), Config{Size: 1, ID: id, Listener: l})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
		t.Error("a job of one rank listens")
	}
	ctx := bounded(t, patience)
	if err := b.Send(ctx, 0, 1, framework.Parcel{Data: []byte("self")}); err != nil {
		t.Fatal(err)
	}
	if p, err := b.Recv(ctx, 0, 1); err != nil || string(p.Data) != "self" {
		t.Errorf("%q, %v", p.Data, err)
	}
	if all, err := AllGatherBytes(ctx, b, 1, []byte("x")); err != nil || len(all) != 1 || !b.SameHost(0) {
		t.Errorf("%q, %v", all, err)
	}
}
