package mscclpp

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Dump writes the state of every channel and the last call that each of the other ranks
// has begun. It is meant for finding out why a job hangs. It may be called at any time
// before Close, and waits for no other rank.
func (j *Job) Dump(w io.Writer) error { return j.World.Dump(w) }

// dumper prints the state of a job when the process gets the signal that was asked for. It
// is there from the first moment of Init on: the signal would end a process without one,
// and a job that hangs in start-up is one to ask.
type dumper struct {
	signals chan os.Signal
	world   atomic.Pointer[comm.Communicator]
	group   sync.WaitGroup
}

// dumpSignal is the signal that the configuration asks for, else the program's; nil: none.
func dumpSignal(configured string, wanted os.Signal) os.Signal {
	switch configured {
	case "none":
		return nil
	case "SIGUSR1":
		return syscall.SIGUSR1
	case "SIGUSR2":
		return syscall.SIGUSR2
	}
	return wanted
}

// newDumper returns nil without a signal.
func newDumper(s os.Signal, w io.Writer) *dumper {
	if s == nil {
		return nil
	}
	d := &dumper{signals: make(chan os.Signal, 1)}
	signal.Notify(d.signals, s)
	d.group.Go(func() {
		for range d.signals {
			if c := d.world.Load(); c != nil {
				_ = c.Dump(w) // there is nobody to tell
			} else {
				fmt.Fprintln(w, "mscclpp: the job is starting: it has no channels yet")
			}
		}
	})
	return d
}

// show makes a communicator the one that is dumped.
func (d *dumper) show(c *comm.Communicator) {
	if d != nil {
		d.world.Store(c)
	}
}

func (d *dumper) stop() {
	if d == nil {
		return
	}
	signal.Stop(d.signals)
	close(d.signals)
	d.group.Wait()
}
