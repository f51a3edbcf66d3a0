package exec

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// begin notes the stream of a call, and whether the call is recorded into a graph: replays use its memory as long as
// the program has the graph.
func (e *Executor) begin(s device.Stream) error {
	e.stream = s
	if e.host {
		return nil
	}
	engine, ok := e.comm.Device().(device.Engine)
	if !ok || e.captured || s == 0 {
		return nil
	}
	var err error
	e.captured, err = streamorder.Capturing(engine, s)
	return err
}

// follow has a call on a GPU begin behind the one before it: both count launches in the same memory.
func (e *Executor) follow(s device.Stream) (marks bool, err error) {
	if e.host {
		return false, nil
	}
	return e.order.Follow(e.comm.Device(), s)
}

// release gives up memory that earlier launches used, in a call. That of calls in graphs is kept until Close.
func (e *Executor) release(unused func() error) error {
	if e.captured {
		e.kept = append(e.kept, unused)
		return nil
	}
	if !e.host && e.enqueued {
		// The call's stream is alive, and a mark on it spoils nothing that other streams record into graphs.
		_, err := e.follow(e.stream)
		if err == nil {
			err = e.order.Mark(e.comm.Device(), e.stream)
		}
		if err == nil {
			err = e.quiet()
		}
		if err != nil {
			e.kept = append(e.kept, unused)
			return err
		}
	}
	return unused()
}

// quiet waits until earlier launches, on a GPU, no longer use memory that is to be freed.
func (e *Executor) quiet() error {
	if e.host || !e.enqueued {
		return nil
	}
	return e.order.Drain(e.comm.Device(), func() {
		e.comm.Abort(fmt.Errorf("%w: rank %d frees memory of plan %s while the plan runs", framework.ErrClosed, e.comm.Rank(), e.plan.Name))
	})
}

// closeKept frees the memory of calls in graphs.
func (e *Executor) closeKept() error {
	var errs []error
	for _, unused := range e.kept {
		errs = append(errs, unused())
	}
	e.kept = nil
	return errors.Join(errs...)
}
