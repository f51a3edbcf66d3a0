package loopnet

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A client that does not know the secret is disconnected, and so is one that sends nonsense.
func TestStrangersAreRefused(t *testing.T) {
	transport, err := New(Config{}.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	own := transport.(*Transport)
	end, err := own.Listen(t.Context(), framework.EndpointConfig{Kind: framework.KindPort, Rank: 0, Ranks: []int{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := decodeAddress(end.Address)
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{
		"another secret":       hello([16]byte{1}),
		"an unknown frame":     frame{Kind: 99}.append(hello(a.Owner)),
		"an unknown region":    frame{Kind: frameSignal, Region: 77}.append(hello(a.Owner)),
		"an endpoint's number": frame{Kind: frameSignal, Region: uint64(end.ID)}.append(hello(a.Owner)),
	} {
		c, err := net.Dial("tcp", a.Host.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(helloWithin)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s is answered", what)
		} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("%s keeps its connection: %v", what, err)
		} else if err != io.EOF && !ok {
			t.Errorf("%s: %v", what, err)
		}
		c.Close()
	}
}
