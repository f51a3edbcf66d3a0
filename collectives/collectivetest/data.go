package collectivetest

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// data is what all ranks put into a trial, and its reduction. Ranks of one process share
// it: each would compute the same, and most of the time of a test. No rank writes to it.
type data struct {
	of      dataOf
	inputs  func() [][]byte
	reduced func() []byte
}

// dataOf is all that data depends on.
type dataOf struct {
	elements, ranks int
	dtype           kernel.DataType
	op              kernel.Op
	seed            uint64
}

// recent are those of the last trials. Ranks are not in the same one at the same time, and
// there may be several jobs.
var recent struct {
	sync.Mutex
	data [8]*data
	next int
}

func (t Trial) data(ranks int, seed uint64) *data {
	in, _ := t.Elements(ranks)
	of := dataOf{in, ranks, t.Type, t.Op, seed}
	recent.Lock()
	defer recent.Unlock()
	for _, d := range recent.data {
		if d != nil && d.of == of {
			return d
		}
	}
	d := &data{of: of}
	d.inputs = sync.OnceValue(func() [][]byte { return t.Inputs(ranks, seed) })
	d.reduced = sync.OnceValue(func() []byte { return t.reduce(d.inputs()) })
	recent.data[recent.next] = d
	recent.next = (recent.next + 1) % len(recent.data)
	return d
}
