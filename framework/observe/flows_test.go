package observe

import (
	"fmt"
	"sync"
	"testing"
)

// Records of channels are read as they were written, from any thread, and take no memory.
func TestFlowsAreSeen(t *testing.T) {
	m, ranks := rig(t, 1, false)
	f := ranks[0].Flows("half")
	if f.On() {
		t.Error("records are on from the start")
	}
	ranks[0].Switch(true)
	const threads, puts = 4, 100
	var all sync.WaitGroup
	for n := range threads {
		all.Go(func() {
			for i := range puts {
				f.Sent(Signal, f.Now(), Place{"tcp", n, 7 + n}, uint64(i+1), 128)
				f.Waited(f.Now(), Place{"tcp", n, n}, uint64(i+1))
			}
		})
	}
	all.Wait()
	v := m.Views()[0]
	var c Cursor
	seen := map[string]int{}
	for _, s := range v.Read(&c) {
		if s.Writer != "channels of half" {
			continue
		}
		for _, x := range s.Records {
			comm, semaphore, signal := FlowOf(x.Call)
			if v.Name(comm) != "half" || v.Name(int(x.Block)) != "tcp" || signal < 1 || signal > puts {
				t.Fatalf("%+v: expected signals of half over tcp", x)
			}
			seen[fmt.Sprint(x.Event.String(), uint16(x.Event.Phase()), " of ", semaphore, " to ", x.Peer, " with ", x.Bytes)]++
		}
	}
	for n := range threads {
		for _, what := range []string{fmt.Sprint("signal2 of ", 7+n, " to ", n, " with 128"), fmt.Sprint("wait0 of ", n, " to ", n, " with 0"), fmt.Sprint("wait1 of ", n, " to ", n, " with 0")} {
			if seen[what] != puts {
				t.Errorf("%s: %d, expected %d: %v", what, seen[what], puts, seen)
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		f.Sent(Put, 5, Place{"tcp", 1, 2}, 3, 4)
		f.Waited(5, Place{"tcp", 1, 2}, 3)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	f.Close()
	f.Sent(Put, 5, Place{"tcp", 1, 2}, 3, 4) // goes nowhere
	(*Rank)(nil).Flows("x").Close()
	if (*Rank)(nil).Flows("x").On() {
		t.Error("the nil Flows is on")
	}
}
