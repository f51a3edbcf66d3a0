package bootstrap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Where the process that made the id is silent, rank 0 waits for that, and another rank for rank 0.
func TestSilentMeetingPlace(t *testing.T) {
	t.Parallel()
	place, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer place.Close()
	id, err := NewUniqueID(netip.MustParseAddrPort(place.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	id[6] |= idMeeting
	id = id.sealed()
	for rank, want := range []struct {
		peer int
		text string
	}{{framework.NoPeer, "the process that made the unique id has not answered rank 0, this rank, at " + place.Addr().String()}, {0, "rank 0 has not come"}} {
		ctx, cancel := context.WithCancel(t.Context())
		ended, left := make(chan struct{}), make(chan struct{})
		go func() { // until the rank has asked
			defer close(left)
			conn, err := place.Accept()
			if err == nil {
				defer conn.Close()
				_, err = conn.Read(make([]byte, 1))
			}
			if err != nil {
				t.Error(err)
			}
			cancel()
			<-ended
		}()
		_, err := Join(ctx, Config{Rank: rank, Size: 2, ID: id, Timeout: time.Minute})
		close(ended)
		expected := errors.Is(err, context.Canceled) && framework.PeerOf(err) == want.peer && strings.Contains(err.Error(), want.text)
		if !expected { // the rank may not have asked at all
			_ = place.Close()
		}
		<-left
		if !expected {
			t.Fatalf("rank %d: %v: expected %q, about %d", rank, err, want.text, want.peer)
		}
	}
}
