package moe

import (
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// fits says what is wrong with a phase behind the calls before it, and sets how far behind the last send it is.
func (b *Buffer) fits(kind int, phase Phase, ticket uint64) error {
	op, a, issued := operations[kind], &b.args, b.issued[kind]
	a.Behind = 0
	if phase != Receive {
		before := &b.recent[kind][(issued+1)%2]
		if before.open && !before.captured {
			return invalid(op, "two calls are between their phases: expected that ticket %d is received first", before.ticket)
		}
		return nil
	}
	if ticket == 0 || ticket > issued || issued-ticket > 1 {
		return invalid(op, "ticket %d of %d: expected that of one of the last two sends", ticket, issued)
	}
	sent := &b.recent[kind][ticket%2]
	if !sent.open {
		return invalid(op, "ticket %d was received: expected one receive for a send", ticket)
	}
	if got := a.sizes(); got != sent.sizes {
		return invalid(op, "the receive has %v: expected %v, as the send with ticket %d", got, sent.sizes, ticket)
	}
	a.Behind = issued - ticket
	return nil
}

// note keeps what the next phases have to fit, of a launch that was made. It returns the ticket.
func (b *Buffer) note(kind int, phase Phase, ticket uint64, captured bool) uint64 {
	if phase == Receive {
		sent := &b.recent[kind][ticket%2]
		sent.open = false
		if b.net != nil {
			sent.received = b.net.receives
		}
		return ticket
	}
	b.issued[kind]++
	ticket = b.issued[kind]
	b.recent[kind][ticket%2] = between{ticket: ticket, sizes: b.args.sizes(), open: phase == Send, captured: captured}
	if b.net != nil {
		b.recent[kind][ticket%2].order, b.recent[kind][ticket%2].received = b.net.sends, b.net.receives
	}
	return ticket
}

// recorded reports whether a send is recorded into a graph.
func (b *Buffer) recorded(phase Phase, s device.Stream) (bool, error) {
	engine, ok := b.comm.Device().(device.Engine)
	if !ok || phase != Send || s == 0 {
		return false, nil
	}
	return streamorder.Capturing(engine, s)
}
