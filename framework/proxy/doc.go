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
// No trigger is forgotten. Who has pushed one and does not get the turn looks whether the thread
// sleeps, and wakes it. The thread says that it sleeps before it looks at the ring for the last
// time, and both are full barriers: either the push sees the sleeper, or the sleeper the
// trigger. It sleeps beside a trigger only while somebody has the turn, for 5 ms at most, and
// that somebody looks at the ring once more after he has given it back: the other one stored
// its trigger before it tried to have the turn. What is left then is performed by him, or by
// the thread, which he wakes. A trigger that was borrowed for is in no ring, so that nobody
// can forget it; a flush of it that is not complete is pushed.
//
// What nobody waits for, such as the failure of a put, is seen by the thread, which looks for
// it when it finds that the turn was not taken since it last looked, after 640 ms at most.
package proxy
