package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"
)

func TestAllGatherBytes(t *testing.T) {
	for n := 1; n <= 13; n++ {
		ranks := local(t, n)
		ctx := bounded(t, patience)
		each(t, ranks, func(b rank) error {
			for turn := range 3 { // one tag, again and again
				mine := bytes.Repeat([]byte{byte(b.Rank() + turn)}, 100*b.Rank())
				all, err := AllGatherBytes(ctx, b, 7, mine)
				if err != nil {
					return err
				}
				for r, got := range all {
					if want := bytes.Repeat([]byte{byte(r + turn)}, 100*r); !bytes.Equal(got, want) {
						return fmt.Errorf("n=%d turn %d: block %d has %d bytes, expected %d", n, turn, r, len(got), len(want))
					}
				}
			}
			return nil
		})
	}
}

// A message of several pages, and blocks beyond the size of a page.
func TestAllGatherPages(t *testing.T) {
	ranks := local(t, 3)
	ctx := bounded(t, patience)
	each(t, ranks, func(b rank) error {
		mine := make([]byte, rounds.PageSize+b.Rank()*rounds.PageSize/2-rounds.HeaderSize-8)
		mine[len(mine)-1] = byte(b.Rank() + 1)
		all, err := AllGatherBytes(ctx, b, 1, mine)
		if err != nil {
			return err
		}
		for r, got := range all {
			if len(got) != rounds.PageSize+r*rounds.PageSize/2-rounds.HeaderSize-8 || got[len(got)-1] != byte(r+1) {
				return fmt.Errorf("block %d is wrong: %d bytes", r, len(got))
			}
		}
		return nil
	})
}

// No rank may leave a barrier before the last one has entered it.
func TestBarrierHoldsEverybody(t *testing.T) {
	const n = 8
	ranks := local(t, n)
	ctx := bounded(t, patience)
	entered := make(chan struct{})
	each(t, ranks, func(b rank) error {
		if b.Rank() == 5 {
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			<-short.Done() // the others have time to leave wrongly
			close(entered)
		}
		if err := Barrier(ctx, b, 3); err != nil {
			return err
		}
		select {
		case <-entered:
			return nil
		default:
			return fmt.Errorf("left before rank 5 entered")
		}
	})
}

func TestRoundsAreLogarithmic(t *testing.T) {
	ranks := local(t, 100)
	ctx := bounded(t, patience)
	each(t, ranks, func(b rank) error { return Barrier(ctx, b, 3) })
	for _, b := range ranks {
		if s := b.Stats(); s.Rounds != 5 || s.Messages > 10 {
			t.Fatalf("rank %d: %d rounds and %d messages, expected 5 and at most 10", b.Rank(), s.Rounds, s.Messages)
		}
	}
}

// Ranks that call different things hear so, instead of taking one for the other.
func TestDifferentCollectives(t *testing.T) {
	ranks := local(t, 2)
	ctx := bounded(t, patience)
	each(t, ranks, func(b rank) error {
		var err error
		if b.Rank() == 0 {
			err = Barrier(ctx, b, 3)
		} else {
			_, err = AllGatherBytes(ctx, b, 3, nil)
		}
		return wantError(err, framework.ErrPeer, 1-b.Rank(), "same calls in the same order")
	})
}

func TestCollectiveDeadlineNamesTheMissing(t *testing.T) {
	ranks := local(t, 2)
	err := Barrier(aMoment(t), ranks[0], 3)
	if err := wantError(err, context.DeadlineExceeded, 1, "barrier"); err != nil {
		t.Fatal(err)
	}
}

func TestAllGatherParcels(t *testing.T) {
	before := openFDs(t)
	testAllGatherParcels(t, local(t, 5))
	if after := openFDs(t); after > before+2*4 { // those that the test made
		t.Errorf("%d descriptors open, expected %d", after, before+2*4)
	}
}

func testAllGatherParcels(t *testing.T, ranks []rank) {
	ctx := bounded(t, patience)
	shares := make([][]framework.Share, len(ranks))
	for r := range shares {
		if r != 1 { // one rank without descriptors
			shares[r] = []framework.Share{
				{Kind: framework.ShareFabric, Blob: []byte{byte(r)}},
				fdShare(t, fmt.Sprint("first of ", r)),
				{Kind: "vendor", Blob: []byte("x")},
				fdShare(t, fmt.Sprint("second of ", r)),
			}
		}
	}
	each(t, ranks, func(b rank) error {
		all, err := AllGather(ctx, b, 9, framework.Parcel{Data: []byte(fmt.Sprint("data ", b.Rank())), Shares: shares[b.Rank()]})
		if err != nil {
			return err
		}
		for r, p := range all {
			defer p.Close()
			if string(p.Data) != fmt.Sprint("data ", r) || len(p.Shares) != len(shares[r]) {
				return fmt.Errorf("parcel %d: %q with %d shares", r, p.Data, len(p.Shares))
			}
			if len(p.Shares) == 0 {
				continue
			}
			if p.Shares[0].Blob[0] != byte(r) || p.Shares[2].Kind != "vendor" {
				return fmt.Errorf("parcel %d: shares in the wrong order", r)
			}
			for i, want := range map[int]string{1: "first of ", 3: "second of "} {
				if got, err := content(p.Shares[i]); got != want+fmt.Sprint(r) {
					return fmt.Errorf("parcel %d: descriptor leads to %q (%v), expected %q", r, got, err, want+fmt.Sprint(r))
				}
			}
		}
		return nil
	})
}
