package bootstrap

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A rank leaves a group, or the job, and the others go on: what waits for it fails, and nothing else does.
func TestDepartures(t *testing.T) {
	of := map[string]func(b framework.Bootstrap) framework.Bootstrap{
		"job":   func(b framework.Bootstrap) framework.Bootstrap { return b },
		"group": func(b framework.Bootstrap) framework.Bootstrap { return Sub(b, []int{2, 1, 0}, 1) },
	}
	check := func(b, g framework.Bootstrap) error {
		ctx, leaver := bounded(t, patience), g.Size()-1
		d := g.(Leaver)
		if g.Rank() == leaver {
			if err := g.Send(ctx, 0, 7, framework.Parcel{Data: []byte("before")}); err != nil {
				return err
			}
			d.Depart(errors.New("enough"))
			return Barrier(ctx, Sub(b, []int{0, 1, 2}, 9), 1) // it is still in other groups
		}
		if g.Rank() == 0 {
			if _, err := g.Recv(ctx, leaver, 7); err != nil {
				return fmt.Errorf("what was sent before: %w", err)
			}
		}
		_, err := g.Recv(ctx, leaver, 8)
		if err := wantError(err, framework.ErrPeer, leaver, "has left the job", "enough"); err != nil {
			return err
		}
		if r, why := d.Departed(); r != leaver || !errors.Is(why, framework.ErrPeer) {
			return fmt.Errorf("rank %d has left: %v", r, why)
		}
		other := 1 - g.Rank()
		if err := g.Send(ctx, other, 7, framework.Parcel{}); err != nil {
			return err
		}
		if _, err := g.Recv(ctx, other, 7); err != nil {
			return err
		}
		if err := d.Err(); err != nil {
			return fmt.Errorf("the group has ended: %w", err)
		}
		return Barrier(ctx, Sub(b, []int{0, 1, 2}, 9), 1)
	}
	for name, group := range of {
		t.Run(name+" in a process", func(t *testing.T) {
			each(t, InProcess(3), func(b *Local) error { return check(b, group(b)) })
		})
		t.Run(name+" over TCP", func(t *testing.T) {
			ranks := joinAll(t, 3, nil)
			defer closeAll(ranks)
			each(t, ranks, func(b *TCP) error { return check(b, group(b)) })
		})
	}
}
