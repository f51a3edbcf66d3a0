package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// bare hides everything but the contract, as a bootstrap of an application.
type bare struct{ framework.Bootstrap }

// group makes the group of some ranks on all of them.
func group(ranks []rank, members []int, base framework.Tag) []rank {
	out := make([]rank, len(members))
	for i, m := range members {
		out[i] = subRank{Sub(ranks[m], members, base).(*sub)}
	}
	return out
}

// subRank gives a group the methods that it has no use for.
type subRank struct{ *sub }

func (subRank) Close() error { return nil }
func (subRank) Stats() Stats { return Stats{} }

func TestSubBehavesAsAJob(t *testing.T) {
	members := []int{4, 1, 3, 0} // any order
	for name, run := range map[string]func(t *testing.T, ranks []rank){
		"order":    testOrderPerTag,
		"borrows":  testSendBorrows,
		"context":  testRecvEndsWithContext,
		"parcels":  testAllGatherParcels,
		"announce": func(t *testing.T, ranks []rank) { testAnnounce(t, ranks, 3) },
	} {
		t.Run(name, func(t *testing.T) { run(t, group(local(t, 6), members, 5)) })
	}
}

// Groups, groups of groups and the job use the same tag at the same time.
func TestSubsDoNotMeet(t *testing.T) {
	ranks := local(t, 4)
	ctx := bounded(t, patience)
	each(t, ranks, func(b rank) error {
		pair := []int{b.Rank() &^ 1, b.Rank() | 1}
		groups := []framework.Bootstrap{
			b,
			Sub(b, []int{0, 1, 2, 3}, 1), Sub(b, []int{3, 2, 1, 0}, 1), Sub(b, []int{0, 1, 2, 3}, 2),
			Sub(b, pair, 1), Sub(Sub(b, pair, 1), []int{1, 0}, 1),
		}
		for i, g := range groups { // all sends first
			for to := range g.Size() {
				if err := g.Send(ctx, to, 1, framework.Parcel{Data: fmt.Appendf(nil, "%d from %d", i, g.Rank())}); err != nil {
					return err
				}
			}
		}
		for i := len(groups) - 1; i >= 0; i-- {
			for from := range groups[i].Size() {
				p, err := groups[i].Recv(ctx, from, 1)
				if want := fmt.Sprintf("%d from %d", i, from); err != nil || string(p.Data) != want {
					return fmt.Errorf("got %q (%v), expected %q", p.Data, err, want)
				}
			}
		}
		return nil
	})
}

// The end of a group is not the end of the job, and not of another group.
func TestGroupEndsAlone(t *testing.T) {
	ranks := local(t, 4)
	ctx := bounded(t, patience)
	a := group(ranks, []int{0, 1, 2}, 1)
	done := errors.New("group is done")
	a[1].Announce(done)
	for i, class := range []error{framework.ErrPeer, done, framework.ErrPeer} {
		if err := wantError(Barrier(ctx, a[i], 1), class, 1, "group is done"); err != nil {
			t.Error(err)
		}
	}
	each(t, ranks, func(b rank) error { return Barrier(ctx, b, 1) })
	each(t, group(ranks, []int{1, 2, 3}, 1), func(b rank) error { return Barrier(ctx, b, 1) })
}

// An announcement may arrive before the group exists here.
func TestGroupFailedEarly(t *testing.T) {
	ranks := local(t, 2)
	Sub(ranks[0], []int{0, 1}, 1).(Watcher).Announce(errors.New("too early"))
	g := Sub(ranks[1], []int{0, 1}, 1)
	if err := wantError(Barrier(bounded(t, patience), g, 1), framework.ErrPeer, 0, "too early"); err != nil {
		t.Error(err)
	}
}

// A death in the job ends its groups, in the ranks of each group.
func TestDeathInSub(t *testing.T) {
	locals := InProcess(5)
	var ranks []rank
	for _, l := range locals {
		ranks = append(ranks, l)
	}
	with := group(ranks, []int{4, 3, 2}, 1)
	without := group(ranks, []int{0, 4}, 1)
	nested := Sub(with[0].(subRank).sub, []int{1, 0}, 1)
	pending := make(chan error, 1)
	go func() {
		_, err := with[0].Recv(context.Background(), 2, 1)
		pending <- err
	}()
	locals[3].Kill()
	for err, peer := range map[error]int{
		<-pending:     1,
		with[2].Err(): 1,
		Sub(with[0], []int{1, 0}, 1).(Watcher).Err():  0, // of a Watcher that Sub does not know
		nested.(Watcher).Err():                        0,
		without[0].Err():                              framework.NoPeer,
		Sub(ranks[0], []int{0, 3}, 9).(Watcher).Err(): 1, // made afterwards
	} {
		if e := wantError(err, framework.ErrPeer, peer, "killed"); e != nil {
			t.Error(e)
		}
	}
	if e := wantError(without[1].Err(), framework.ErrPeer, framework.NoPeer, "rank 3 of the whole job"); e != nil {
		t.Error(e)
	}
}

func TestSubOfForeignBootstrap(t *testing.T) {
	ranks := local(t, 3)
	ctx := bounded(t, patience)
	share := fdShare(t, "foreign")
	each(t, ranks, func(b rank) error {
		if b.Rank() == 0 {
			return nil
		}
		g := Sub(bare{b}, []int{1, 2}, 1)
		all, err := AllGather(ctx, g, 1, framework.Parcel{Shares: []framework.Share{share}})
		if err != nil {
			return err
		}
		for _, p := range all {
			defer p.Close()
			if text, err := content(p.Shares[0]); text != "foreign" {
				return fmt.Errorf("descriptor leads to %q (%v)", text, err)
			}
		}
		w := g.(Watcher)
		w.Announce(errors.New("enough"))
		<-w.Failed()
		return wantError(g.Send(ctx, 0, 1, framework.Parcel{}), w.Err(), b.Rank()-1, "enough")
	})
	if _, err := Sub(ranks[0], []int{1, 2}, 1).Recv(ctx, 0, 1); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("a rank outside of the group: %v, expected ErrInvalid", err)
	}
}
