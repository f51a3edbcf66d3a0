// Package dsl is the language for execution plans: a Go program describes which thread block of which rank moves,
// reduces and signals what, and Compile makes a plan of it that every executor of the format runs.
//
//	p := dsl.New(dsl.AllGather(2, 1, true), dsl.Options{Name: "allgather"})
//	for r := range 2 {
//		peer := 1 - r
//		ch := p.MemoryChannel(peer, r)
//		ch.Signal(0, dsl.Relaxed) // the peer may write into the buffer of this rank
//		ch.Wait(0, dsl.Relaxed|dsl.After)
//		ch.Put(p.Output(peer).Slice(r, r+1), p.Output(r).Slice(r, r+1), dsl.Block(0))
//		ch.Signal(0, dsl.Before)
//		ch.Wait(0, dsl.After)
//	}
//	plan, err := p.Compile()
//
// Nothing is executed while a program is built: each call appends an operation to the list of one thread block. Compile
// merges neighbors that one operation can do, inserts the joins of a block's threads that the data needs, and replicates
// the whole for Options.Instances.
//
// A mistake in a program does not stop it. The first one is kept with the line of the program that made it, every later
// call does nothing, and Compile returns it. Err tells it earlier, which front ends for other languages use after each call.
package dsl
