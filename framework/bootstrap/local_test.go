package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

func TestOrderPerTag(t *testing.T) {
	ranks := local(t, 2)
	testOrderPerTag(t, ranks)
}

func testOrderPerTag(t *testing.T, ranks []rank) {
	ctx := bounded(t, patience)
	const count = 200
	for i := range count {
		tag := framework.Tag(i % 3)
		if err := ranks[0].Send(ctx, 1, tag, framework.Parcel{Data: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	for tag := range 3 { // tags in another order than they were sent
		for i := 2 - tag; i < count; i += 3 {
			p, err := ranks[1].Recv(ctx, 0, framework.Tag(2-tag))
			if err != nil {
				t.Fatal(err)
			}
			if p.Data[0] != byte(i) {
				t.Fatalf("tag %d: got message %d, expected %d", 2-tag, p.Data[0], i)
			}
		}
	}
}

// The sent message must not change when the sender uses its buffer again.
func TestSendBorrows(t *testing.T) {
	ranks := local(t, 2)
	testSendBorrows(t, ranks)
}

func testSendBorrows(t *testing.T, ranks []rank) {
	ctx := bounded(t, patience)
	p := framework.Parcel{Data: []byte("before"), Shares: []framework.Share{{Kind: "v", Blob: []byte("before")}, fdShare(t, "file")}}
	if err := ranks[0].Send(ctx, 1, 1, p); err != nil {
		t.Fatal(err)
	}
	copy(p.Data, "after!")
	copy(p.Shares[0].Blob, "after!")
	_ = p.Shares[1].FD.Close()
	got, err := ranks[1].Recv(ctx, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if string(got.Data) != "before" || len(got.Shares) != 2 || string(got.Shares[0].Blob) != "before" {
		t.Errorf("got %q", got.Data)
	}
	if text, err := content(got.Shares[1]); text != "file" {
		t.Errorf("descriptor leads to %q (%v)", text, err)
	}
}

func TestMisuse(t *testing.T) {
	ranks := local(t, 2)
	testMisuse(t, ranks)
}

func testMisuse(t *testing.T, ranks []rank) {
	ctx := bounded(t, patience)
	b := ranks[0]
	big := framework.Parcel{Data: make([]byte, MaxData+1)}
	for name, err := range map[string]error{
		"rank too high":    b.Send(ctx, 2, 1, framework.Parcel{}),
		"negative rank":    b.Send(ctx, -1, 1, framework.Parcel{}),
		"too long":         b.Send(ctx, 1, 1, big),
		"too many shares":  b.Send(ctx, 1, 1, framework.Parcel{Shares: make([]framework.Share, MaxShares+1)}),
		"blob too long":    b.Send(ctx, 1, 1, framework.Parcel{Shares: []framework.Share{{Blob: make([]byte, wire.MaxBlob+1)}}}),
		"no descriptor":    b.Send(ctx, 1, 1, framework.Parcel{Shares: []framework.Share{{Kind: framework.ShareMemFD}}}),
		"kind too long":    b.Send(ctx, 1, 1, framework.Parcel{Shares: []framework.Share{{Kind: framework.ShareKind(make([]byte, wire.MaxKind+1))}}}),
		"gather too long":  func() error { _, err := AllGather(ctx, b, 1, big); return err }(),
		"recv: wrong rank": func() error { _, err := b.Recv(ctx, 9, 1); return err }(),
	} {
		if !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v, expected ErrInvalid", name, err)
		}
	}
}

func TestRecvEndsWithContext(t *testing.T) {
	ranks := local(t, 2)
	testRecvEndsWithContext(t, ranks)
}

func testRecvEndsWithContext(t *testing.T, ranks []rank) {
	_, err := ranks[0].Recv(aMoment(t), 1, 5)
	if err := wantError(err, context.DeadlineExceeded, 1, "recv", "nothing with tag 0x"); err != nil {
		t.Fatal(err)
	}
	// The wait that ended must not take a later message with it.
	ctx := bounded(t, patience)
	if err := ranks[1].Send(ctx, 0, 5, framework.Parcel{Data: []byte("late")}); err != nil {
		t.Fatal(err)
	}
	if p, err := ranks[0].Recv(ctx, 1, 5); err != nil || string(p.Data) != "late" {
		t.Fatalf("%q, %v", p.Data, err)
	}
}

// An announcement ends what is pending on all ranks, and names the rank that the cause blames
// rather than the one that passed it on.
func TestAnnounce(t *testing.T) {
	for _, blamed := range []int{framework.NoPeer, 1} {
		t.Run(fmt.Sprint("blames ", blamed), func(t *testing.T) {
			testAnnounce(t, local(t, 4), blamed)
		})
	}
}

func testAnnounce(t *testing.T, ranks []rank, blamed int) {
	ctx := bounded(t, patience)
	cause := error(&framework.Error{Op: "test", Peer: blamed, Err: framework.ErrPlugin})
	culprit := blamed
	if blamed == framework.NoPeer {
		culprit = 2
	}
	each(t, ranks, func(b rank) error {
		if b.Rank() == 2 {
			b.Announce(cause)
			return wantError(b.Err(), framework.ErrPlugin, culprit)
		}
		err := Barrier(ctx, b, 1)
		if e := wantError(err, framework.ErrPeer, culprit, "plugin gone"); e != nil {
			return e
		}
		<-b.Failed()
		if e := wantError(b.Err(), framework.ErrPeer, culprit); e != nil {
			return e
		}
		return wantError(b.Send(ctx, 0, 1, framework.Parcel{}), framework.ErrPeer, culprit)
	})
}

// A rank that leaves is not dead, and its earlier messages still arrive.
func TestLeave(t *testing.T) {
	testLeave(t, local(t, 3))
}

func testLeave(t *testing.T, ranks []rank) {
	ctx := bounded(t, patience)
	if err := ranks[1].Send(ctx, 0, 1, framework.Parcel{Data: []byte("last words")}); err != nil {
		t.Fatal(err)
	}
	ranks[1].Leave()
	if err := ranks[1].Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := ranks[0].Recv(ctx, 1, 1); err != nil || string(p.Data) != "last words" {
		t.Fatalf("%q, %v", p.Data, err)
	}
	_, err := ranks[0].Recv(ctx, 1, 1)
	if err := wantError(err, framework.ErrPeer, 1, "left"); err != nil {
		t.Error(err)
	}
	if err := wantError(ranks[1].Send(ctx, 0, 1, framework.Parcel{}), framework.ErrClosed, 0); err != nil {
		t.Error(err)
	}
	// The others go on.
	each(t, []rank{ranks[0], ranks[2]}, func(b rank) error {
		return Barrier(ctx, Sub(b, []int{0, 2}, 1), 1)
	})
	for _, r := range []int{0, 2} {
		if err := ranks[r].Err(); err != nil {
			t.Errorf("rank %d: %v after an orderly goodbye", r, err)
		}
	}
}

func TestLocalKill(t *testing.T) {
	locals := InProcess(3)
	ctx := bounded(t, patience)
	each(t, locals, func(l *Local) error {
		if l.Rank() == 1 {
			l.Kill()
			return nil
		}
		_, err := l.Recv(ctx, 2-l.Rank(), 1) // of the other survivor
		return wantError(err, framework.ErrPeer, 1, "killed")
	})
}

// Descriptors that were never received are closed.
func TestCloseReleases(t *testing.T) {
	share := fdShare(t, "x")
	locals := InProcess(2)
	for range 5 {
		if err := locals[0].Send(bounded(t, patience), 1, 1, framework.Parcel{Shares: []framework.Share{share}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := openFDsOf(t, share.FD); got != 6 {
		t.Fatalf("%d descriptors of the share, expected ours and 5 in flight", got)
	}
	_ = locals[1].Close()
	if got := openFDsOf(t, share.FD); got != 1 {
		t.Errorf("%d descriptors of the share left, expected ours alone", got)
	}
	if err := locals[0].Send(bounded(t, patience), 1, 1, framework.Parcel{}); !errors.Is(err, framework.ErrPeer) {
		t.Errorf("send to a closed rank: %v", err)
	}
}
