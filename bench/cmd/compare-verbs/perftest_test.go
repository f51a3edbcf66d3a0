package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// A client is started when its server listens, however long that takes, and not at all where the server has ended.
func TestAwaitServer(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("no %s on this machine: %v", address, err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := awaitServer(t.Context(), port, nil); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		port = 0 // no server can listen there
		ended := make(chan error, 1)
		ended <- errors.New("exit status 1")
		if err := awaitServer(t.Context(), port, ended); err == nil || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%v: expected how the server has ended", err)
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := awaitServer(done, port, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%v: expected the end of the context", err)
		}
	}
}
