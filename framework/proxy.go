package framework

import "context"

// Proxy drains one trigger ring and performs what the triggers ask for: put,
// signal, flush, in the order in which they were pushed, per connection.
//
// Implemented by transports whose Description says ProxyPlugin. Called by
// framework/comm. For transports that say ProxyRank the rank does the same by
// framework/proxy, with addresses in place of ids and keys.
//
// BindMemory and BindSemaphore may be called while the ring is drained; a slot is
// written once and must be bound before a trigger cites it. Data moves one way,
// from own memory to a peer's. A trigger that cites an unbound slot, memory of the
// wrong side, or more than a bound range ends the proxy with ErrInvalid, and sets
// the ring's error word so that no kernel waits for it.
type Proxy interface {
	BindMemory(ctx context.Context, slot uint32, m MemoryBinding) error
	BindSemaphore(ctx context.Context, slot uint32, s SemaphoreBinding) error

	// Start drains the ring behind the share until Stop. The proxy duplicates
	// the descriptor. Errors that come later are reported by Wait.
	Start(ctx context.Context, ring Share) error

	// Wait blocks until the proxy has ended and returns why: nil after Stop,
	// else the typed cause of death.
	Wait(ctx context.Context) error

	// Stop performs what was pushed before the call, within ctx, and ends.
	Stop(ctx context.Context) error
}

// Helper is what a Proxy in the rank's own process may be besides: the rank's threads that
// push or wait lend themselves to it, so that its own can sleep. What is true of every
// other question to a transport is not of this one: a plugin has no say in it, since the
// client of a plugin is never a Helper. A proxy that is none, or is wrapped, is slower.
//
// Implemented by transports/internal/verbs. Called by framework/comm through the ring.
type Helper interface {
	// Help performs what was pushed and, for one who waits, completes what is done,
	// unless the proxy's own thread is at it. It does not wait, and may be called
	// concurrently and late. Soon: a flush is open, something is left to perform, or
	// signals are counted here, so that one who waits may need another call.
	Help(waits bool) (soon bool)

	// Perform performs the trigger of these two words in place of a push, if all that
	// was pushed before is performed, and if neither the proxy's thread nor anybody
	// else is at work. Else taken is false, and nothing has happened. done: it asks for
	// a flush, which is complete; one that is not has to be pushed. It waits no longer
	// than a network takes to answer, and may be called as Help may.
	Perform(fst, snd uint64) (taken, done bool)
}

// MemoryBinding gives a number to memory that triggers cite. Exactly one of Local
// and Conn is set.
type MemoryBinding struct {
	Local ID     // own memory: a registration
	Conn  ID     // a peer's memory: the connection over which it is reached…
	Key   Parcel // …and the key that the peer's registration returned
}

// SemaphoreBinding gives a number to a peer's semaphore: the word at Offset of the
// memory behind Key, raised by one for each signal, after the data of all earlier
// puts over Conn is visible.
type SemaphoreBinding struct {
	Conn   ID
	Key    Parcel
	Offset uint64
}
