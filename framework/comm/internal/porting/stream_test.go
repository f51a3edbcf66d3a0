package porting

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/stream"
)

// Small puts wait for others, but never for more than there are places for; a signal, a
// flush or a large put takes along what waits.
func TestUrgentTriggers(t *testing.T) {
	put := func(kind, bytes uint64) kernel.Trigger {
		return kernel.TriggerFields{Kind: kind, Bytes: bytes, From: 1, Dst: 1}.Pack()
	}
	for _, c := range []struct {
		name string
		t    kernel.Trigger
		held bool
	}{
		{"8 bytes", put(kernel.TriggerData, 8), true},
		{"16 KiB", put(kernel.TriggerData, 16<<10), true},
		{"more", put(kernel.TriggerData, 16<<10+1), false},
		{"with a signal", put(kernel.TriggerData|kernel.TriggerSignal, 8), false},
		{"with a flush", put(kernel.TriggerData|kernel.TriggerFlush, 8), false},
		{"a signal", put(kernel.TriggerSignal, 0), false},
	} {
		sent := 0
		for pos := uint64(100); pos < 100+64*heldPuts; pos++ {
			if urgent(c.t, pos) {
				sent++
			}
		}
		want := 64 * heldPuts
		if c.held {
			want = 64
		}
		if sent != want {
			t.Errorf("%s: %d of %d triggers are sent at once, expected %d", c.name, sent, 64*heldPuts, want)
		}
	}
}

// Work that the engine would refuse, time and again while Give waits for room, is refused at once.
func TestOperationsThatStreamsRefuse(t *testing.T) {
	const room = 1 << 20
	for name, c := range map[string]struct {
		streamed   bool
		dst        uint64
		head, data int
		class      error
		text       string
	}{
		"all of it":          {true, 0, stream.MaxHead, room - stream.MaxHead, nil, ""},
		"nothing at the end": {true, room, 0, 0, nil, ""},
		"one byte too much":  {true, 1, 0, room, framework.ErrInvalid, "range [1, 1048577) of 1048576"},
		"beyond all":         {true, math.MaxUint64, 0, 1, framework.ErrInvalid, "destination range"},
		"a long head":        {true, 0, stream.MaxHead + 1, 8, framework.ErrInvalid, "head of 8193 bytes"},
		"no such sockets":    {false, 0, 0, 8, framework.ErrUnsupported, "Gives"},
	} {
		ch := &Channel{}
		ch.link, ch.peerLen = &link{Link: &negotiate.Link{Streamed: c.streamed}}, room
		err := ch.givable(c.dst, c.head, c.data)
		if !errors.Is(err, c.class) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, expected %v and %q", name, err, c.class, c.text)
		}
	}
}
