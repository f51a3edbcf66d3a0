package tcp

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// both runs the two ends of a handshake on a pipe.
func both(t *testing.T, clientSecret, serverSecret [32]byte, look, join refusal) (client, server error) {
	t.Helper()
	a, b := net.Pipe()
	for _, c := range []net.Conn{a, b} {
		if err := c.SetDeadline(time.Now().Add(4 * time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := welcome(b, func(hello) ([32]byte, refusal) { return serverSecret, look }, func(hello) (refusal, error) { return join, nil })
		b.Close()
		done <- err
	}()
	client = greet(a, clientSecret, hello{streams: 1})
	a.Close()
	return client, <-done
}

func TestHandshake(t *testing.T) {
	secret, wrong := [32]byte{1}, [32]byte{2}
	if client, server := both(t, secret, secret, accepted, accepted); client != nil || server != nil {
		t.Fatalf("%v and %v, want both ends content", client, server)
	}
	for _, c := range []struct {
		secret     [32]byte
		look, join refusal
		want       string
	}{
		{wrong, accepted, accepted, "did not accept this rank's proof"},
		{secret, refusedEndpoint, accepted, "no such endpoint"},
		{secret, refusedRank, accepted, "another pair of ranks"},
		{secret, accepted, refusedStream, "does not belong to a group"},
	} {
		client, server := both(t, c.secret, secret, c.look, c.join)
		if !errors.Is(client, framework.ErrPeer) || !strings.Contains(client.Error(), c.want) {
			t.Errorf("client: %v, want ErrPeer with %q", client, c.want)
		}
		if !errors.Is(server, framework.ErrPeer) {
			t.Errorf("server: %v, want ErrPeer", server)
		}
	}
}

// A server that does not know the secret, and one of another version, are found out.
func TestFalseServers(t *testing.T) {
	for want, serve := range map[string]func(c net.Conn) error{
		"does not know the endpoint's secret": func(c net.Conn) error {
			if _, err := io.ReadFull(c, make([]byte, helloBytes)); err != nil {
				return err
			}
			if _, err := c.Write(reply{version: streamVersion}.append(nil)); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, make([]byte, proofBytes)); err != nil {
				return err
			}
			_, err := c.Write(make([]byte, finalBytes))
			return err
		},
		"it speaks version 2": func(c net.Conn) error {
			if _, err := io.ReadFull(c, make([]byte, helloBytes)); err != nil {
				return err
			}
			_, err := c.Write(reply{version: 2}.append(nil))
			return err
		},
		"is no plugin": func(c net.Conn) error {
			if _, err := io.ReadFull(c, make([]byte, helloBytes)); err != nil {
				return err
			}
			_, err := c.Write(make([]byte, replyBytes))
			return err
		},
		"not completed": func(c net.Conn) error { return c.Close() },
	} {
		a, b := net.Pipe()
		if err := errors.Join(a.SetDeadline(time.Now().Add(4*time.Minute)), b.SetDeadline(time.Now().Add(4*time.Minute))); err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- serve(b) }()
		if err := greet(a, [32]byte{1}, hello{streams: 1}); !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrPeer with %q", err, want)
		}
		a.Close()
		if err := <-served; err != nil {
			t.Errorf("%s: the server: %v", want, err)
		}
		b.Close()
	}
}

// A client of another version learns which one is spoken here.
func TestOtherVersion(t *testing.T) {
	a, b := net.Pipe()
	if err := errors.Join(a.SetDeadline(time.Now().Add(4*time.Minute)), b.SetDeadline(time.Now().Add(4*time.Minute))); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	served := make(chan error, 1)
	go func() {
		_, err := welcome(b, nil, nil) // neither is asked
		b.Close()
		served <- err
	}()
	// No more than what all versions have in common is read.
	if _, err := a.Write(hello{version: 9, streams: 1}.append(nil)[:6]); err != nil {
		t.Fatal(err)
	}
	second := make([]byte, replyBytes)
	if _, err := io.ReadFull(a, second); err != nil {
		t.Fatal(err)
	}
	r, err := decodeReply(second)
	if err != nil || r.version != streamVersion || r.refusal != refusedVersion {
		t.Errorf("reply %+v, %v, want refusal %d by version %d", r, err, refusedVersion, streamVersion)
	}
	if err := <-served; !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("the server says %v, want ErrPeer that names version 9", err)
	}
}
