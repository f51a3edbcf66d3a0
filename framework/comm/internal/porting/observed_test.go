package porting

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// A signal that could not be pushed has no number: the peer never gets it, and counts on with the next one.
func TestSignalsThatAreNotPushedHaveNoNumber(t *testing.T) {
	const slots = 2
	r, err := ring.New(slots)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := life.New("test", slog.New(slog.DiscardHandler), 0, nil, func() {})
	e := &end{service: &service{ring: r, ended: make(chan struct{})}}
	ch := &Channel{}
	ch.ports, ch.link, ch.life, ch.kernels = &Ports{Life: l}, &link{Link: &negotiate.Link{}}, t.Context(), e
	ch.host.Store(e)
	for range slots {
		if err := ch.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ch.SignalAndFlush(ctx); !errors.Is(err, framework.ErrPeer) { // nothing drains the ring
		t.Errorf("%v: expected an error of the class peer failed", err)
	}
	if n := ch.sent.Load(); n != slots {
		t.Errorf("%d signals are counted, expected %d", n, slots)
	}
}
