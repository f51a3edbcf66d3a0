// Package proxy runs a handler for every trigger of a ring, on a thread of its own:
// the proxy of programs that bring their own triggers, of ranks whose copy engine
// moves the data, and of transports that are written in Go.
//
// A trigger has 127 bits that belong to whoever writes the kernel and the handler.
// In a rank:
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
// # Who has the turn
//
// Where proxy and program are one process, threads of the program do the proxy's work
// themselves: Help performs what is in the ring, and Borrow lets its caller perform one trigger
// that is in none. All of it, and the thread's own work, happens under one lock, the turn, so
// two never perform at once. The thread gives the turn up where it yields or sleeps, and when
// it sees that others have had it; others only ever try to take it, and never wait for it.
//
// Order is kept, since Borrow gives the turn only while the ring's head, which a push raises
// before it writes its slot, is where its tail is: what the same goroutine has pushed before
// is performed then, and what others push at the same time has no order.
//
// No trigger is forgotten, since the thread does not sleep for long beside one. Who has pushed
// one stores it and then looks whether the thread sleeps, which he ends; the thread says that it
// sleeps and then looks at the ring. All four are atomic, and Go's atomics have one order: either
// the push sees the sleeper, or the sleeper the trigger. A sleeper that sees one stays awake, or,
// while somebody has the turn, sleeps for 5 ms and looks again, until nobody has: then it performs
// what is there.
//
// Those 5 ms are rare. Who gives the turn back looks at the ring once more, and mostly finds what
// was pushed by one who could not have the turn meanwhile: he performs it, or wakes the thread.
// Nothing rests on it: a TryLock that fails is an ordinary load, which some processors, such as those
// of arm64, do before the store of the trigger in front of it, and then he may miss it.
//
// A trigger that was borrowed for is in no ring, so that nobody can forget it; a flush of it that
// is not complete is pushed.
//
// What nobody waits for, such as the failure of a put, is seen by the thread, which looks for
// it when it finds that the turn was not taken since it last looked, after 640 ms at most.
package proxy
