package comm

import (
	"io"
	"slices"
	"sync"
)

// dumps are the additions to a dump, in their order.
type dumps struct {
	mu   sync.RWMutex // held for reading while they run
	list []*func(io.Writer)
}

// OnDump adds f to what Dump writes. f may be called at any time, from any goroutine,
// and should not wait. The function that OnDump returns removes f; it waits until f is
// not running.
func (d *dumps) OnDump(f func(io.Writer)) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, &f)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.list = slices.DeleteFunc(d.list, func(x *func(io.Writer)) bool { return x == &f })
	}
}

func (d *dumps) write(w io.Writer) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, f := range d.list {
		(*f)(w)
	}
}
