package framework

import "context"

// Proxy drains one trigger ring and performs what the triggers ask for (put, signal,
// flush), per connection in the order in which they were pushed.
//
// Implemented by transports whose Description says ProxyPlugin. Called by
// framework/comm. For transports that say ProxyRank, the rank does the same through
// framework/proxy, with addresses in place of IDs and keys.
//
// BindMemory and BindSemaphore may be called while the ring is drained; a slot is
// written once and must be bound before a trigger refers to it. Data moves one way,
// from the rank's own memory to a peer's. A trigger that refers to an unbound slot, to
// memory of the wrong side, or to more than a bound range ends the proxy with
// ErrInvalid and sets the ring's error word, so that no kernel waits for it.
type Proxy interface {
	BindMemory(ctx context.Context, slot uint32, m MemoryBinding) error
	BindSemaphore(ctx context.Context, slot uint32, s SemaphoreBinding) error

	// Start drains the ring behind the share until Stop. The proxy duplicates the
	// descriptor. Later errors are reported by Wait.
	Start(ctx context.Context, ring Share) error

	// Wait blocks until the proxy has ended and returns the reason: nil after Stop,
	// otherwise an error of one of the classes.
	Wait(ctx context.Context) error

	// Stop performs the triggers that were pushed before the call, within ctx, and then ends the
	// proxy.
	Stop(ctx context.Context) error
}

// Helper is an optional interface of a Proxy that runs in the rank's own process.
// Threads of the rank that push or wait do the proxy's work through it, so that the
// proxy's own thread can sleep. It is found by type assertion. This is the only
// exception to the rule that capabilities are data: the client of a plugin is never a
// Helper, so no plugin is asked. A proxy that is not a Helper, or is wrapped, is
// slower.
//
// Implemented by transports/internal/verbs. Called by framework/comm through the ring.
type Helper interface {
	// Help performs what has been pushed and, if the caller waits for something, also
	// processes completions, unless the proxy's own thread is doing so. It does not
	// block. It may be called concurrently, and after the proxy has ended. soon reports
	// that a flush is open, that something is left to perform, or that signals are
	// counted here, so that a waiting caller may need to call again.
	Help(waits bool) (soon bool)

	// Perform performs the trigger that these two words hold, in place of a push. It
	// does so only if everything pushed before has been performed, and neither the
	// proxy's thread nor another caller is at work; otherwise taken is false, and nothing
	// has happened. done reports that the trigger asks for a flush and that the flush
	// is complete; a flush that is not complete has to be pushed. Perform waits no
	// longer than a network takes to answer, and may be called under the same
	// conditions as Help.
	Perform(fst, snd uint64) (taken, done bool)
}

// MemoryBinding describes memory that triggers refer to by the number of a slot.
// Exactly one of Local and Conn is set.
type MemoryBinding struct {
	Local ID     // own memory: a registration
	Conn  ID     // a peer's memory: the connection over which it is reached…
	Key   Parcel // …and the key that the peer's registration returned
}

// SemaphoreBinding describes a peer's semaphore that triggers refer to by the number of
// a slot: the word at Offset of the memory behind Key. It is raised by one for each
// signal, after the data of all earlier puts over Conn is visible.
//
// A binding without a connection, for a slot that is bound, says that the peer has closed its
// communicator in good order: from then on a trigger that asks for a signal alone does
// nothing. Proxies of adapters (SignalAtomic, SignalImmediate) get this call some hundred
// milliseconds before the peer's adapter is gone; all others may refuse it.
type SemaphoreBinding struct {
	Conn   ID
	Key    Parcel
	Offset uint64
}
