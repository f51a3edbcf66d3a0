package porting

import (
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// note counts what the host sends, and records it for observers.
func (ch *requests) note(kind, bytes uint64) {
	signal := kind&kernel.TriggerSignal != 0
	n := uint64(0)
	if signal {
		n = ch.sent.Add(1)
	}
	if ch.ports.Flows.On() {
		ch.record(signal, n, bytes)
	}
}

func (ch *requests) record(signal bool, n, bytes uint64) {
	f := ch.ports.Flows
	switch {
	case signal:
		f.Sent(observe.Signal, f.Now(), ch.place(ch.pair.Theirs), n, bytes)
	case bytes > 0:
		f.Sent(observe.Put, f.Now(), ch.place(ch.pair.Theirs), ch.sent.Load()+1, bytes)
	}
}

// clock reads the time for the record of a wait, or returns 0 while no records are wanted.
func (ch *state) clock() int64 {
	if f := ch.ports.Flows; f.On() {
		return f.Now()
	}
	return 0
}

func (ch *state) place(semaphore int) observe.Place {
	return observe.Place{Transport: ch.link.Transport.Name, Peer: ch.pair.Peer, Semaphore: semaphore}
}
