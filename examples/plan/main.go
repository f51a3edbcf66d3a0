// Command plan writes the execution plan of an all-reduce of two ranks: docs/plans.md goes through it.
//
//	mscclpp-run plan compile examples/plan/main.go --output allreduce.json
//	mscclpp-run plan check allreduce.json
package main

import (
	"fmt"
	"os"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
)

func allReduce() *dsl.Program {
	p := dsl.New(dsl.AllReduce(2, 1, true), dsl.Options{Name: "allreduce"})
	for r := range 2 {
		peer, part := 1-r, p.Input(r).At(r)
		ch := p.MemoryChannel(peer, r)
		ch.Signal(0, dsl.Relaxed)
		ch.Wait(0, dsl.Relaxed|dsl.After)
		ch.Reduce(part, part, []dsl.Chunk{p.Input(peer).At(r)}, dsl.Block(0))
		ch.Put(p.Input(peer).At(r), part, dsl.Block(0))
		ch.Signal(0, dsl.Before)
		ch.Wait(0, dsl.After)
	}
	return p
}

func main() {
	plan, err := allReduce().Compile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(plan.Encode(2)))
}
