// Package proxy runs a handler for every trigger of a ring, on a thread of its own. It
// serves programs that bring their own triggers, ranks whose copy engine moves the
// data, and transports that are written in Go.
//
// A trigger has 127 bits whose meaning is up to the author of the kernel and the handler. In a
// rank:
//
//	r, err := ring.New(512)
//	p := proxy.New(r, func(t device.Trigger, pos uint64) proxy.Result {
//		… perform t …
//		r.Complete(0, pos) // ends a flush, if the kernel waits for one
//		return proxy.Continue
//	}, proxy.Options{})
//	err = p.Start()
//	handle := r.Handle(comm.Control()) // for kernels; the host uses r.Push
//
// In a plugin, [Base] is the part of framework.Proxy that every proxy has.
//
// # The turn
//
// Where proxy and program are one process, threads of the program do the proxy's work
// themselves: Help performs what is in the ring, and Borrow lets its caller perform one
// trigger that is not in the ring. All of this, and the work of the proxy's thread,
// happens under one lock, the turn, so two threads never perform at once. The thread
// gives the turn up where it yields or sleeps, and when it sees that others have had
// it. Others only try to take the turn; they never wait for it.
//
// # Order
//
// Order is kept, since Borrow gives the turn only while the ring's head is equal to its
// tail. A push raises the head before it writes its slot, so whatever the same
// goroutine pushed before has been performed by then. Concurrent pushes of others
// have no order.
//
// # Why no trigger is forgotten
//
// The thread does not sleep for long while a trigger is in the ring. A producer stores its trigger
// and then looks whether the thread sleeps, and wakes it if so; the thread announces that it sleeps
// and then looks at the ring. All four accesses are atomic, and Go's atomics have one total order:
// either the producer sees the sleeper, or the sleeper sees the trigger. A sleeper that sees a
// trigger stays awake. While another thread has the turn, it sleeps for 5 ms and looks again, until
// none has the turn; then it performs what is there.
//
// Those 5 ms are rare. The owner of the turn looks at the ring once more before it gives it back, and
// mostly finds what was pushed meanwhile by a producer that could not have the turn; it
// then performs that trigger or wakes the thread. Correctness does not depend on this
// look. A TryLock that fails is an ordinary load, which some processors, such as those
// of arm64, may perform before the preceding store of the trigger; then the look may
// miss the trigger.
//
// A trigger performed after Borrow is in no ring, so it cannot be forgotten there. If
// it asks for a flush that is not complete yet, it is pushed.
//
// The failure of a put, and whatever else nobody waits for, is noticed by the thread.
// It looks for such things when it finds that the turn was not taken since it last
// looked, after 640 ms at most.
package proxy
