package verbs

import (
	"errors"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// An endpoint that is closed while it is connected leaves nothing, and its queue pair is not
// touched after it.
func TestConnectWhileClosing(t *testing.T) {
	ctx := t.Context()
	for name, mode := range modes {
		library := fake(t)
		a, b := transportOn(t, library, mode), transportOn(t, library, mode)
		connected, refused := 0, 0
		for range 200 {
			ea, err := a.Listen(ctx, linkConfig(0))
			if err != nil {
				t.Fatal(err)
			}
			eb, err := b.Listen(ctx, linkConfig(1))
			if err != nil {
				t.Fatal(err)
			}
			var both sync.WaitGroup
			both.Go(func() {
				_, err := a.Connect(ctx, ea.ID, []framework.Peer{{Rank: 1, Address: eb.Address}})
				switch {
				case err == nil:
					connected++
				case errors.Is(err, framework.ErrInvalid):
					refused++
				default:
					t.Errorf("%s: %v: expected a connection, or ErrInvalid", name, err)
				}
			})
			if err := a.Close(ctx, ea.ID); err != nil {
				t.Error(err)
			}
			both.Wait()
			if err := b.Close(ctx, eb.ID); err != nil {
				t.Error(err)
			}
		}
		if n := a.objects.Len() + b.objects.Len(); n != 0 || a.users != 0 || b.users != 0 {
			t.Errorf("%s: %d connected, %d refused; %d things and %d and %d users are left", name, connected, refused, n, a.users, b.users)
		}
	}
}
