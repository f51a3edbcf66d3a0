package porting

import (
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// note counts what the host has sent, and records it for observers if it had the time of clock before it sent. A signal that could not be pushed
// is not noted: the peer never counts it.
func (ch *requests) note(at int64, kind, bytes uint64) {
	signal := kind&kernel.TriggerSignal != 0
	n := uint64(0)
	if signal {
		n = ch.sent.Add(1)
	}
	if at != 0 {
		ch.record(at, signal, n, bytes)
	}
}

func (ch *requests) record(at int64, signal bool, n, bytes uint64) {
	f := ch.ports.Flows
	switch {
	case signal:
		f.Sent(observe.Signal, at, ch.place(ch.pair.Theirs), n, bytes)
	case bytes > 0:
		f.Sent(observe.Put, at, ch.place(ch.pair.Theirs), ch.sent.Load()+1, bytes)
	}
}

// clock reads the time for a record, or returns 0 while no records are wanted.
func (ch *state) clock() int64 {
	if f := ch.ports.Flows; f.On() {
		return f.Now()
	}
	return 0
}

func (ch *state) place(semaphore int) observe.Place {
	return observe.Place{Transport: ch.link.Transport.Name, Peer: ch.pair.Peer, Semaphore: semaphore}
}
