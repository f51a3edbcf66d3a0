package streamorder

import (
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// quieter is a device that waits for all that its streams have been given, also those that were destroyed. Unlike a mark behind
// everything this disturbs no capture; but it ends when the work does.
type quieter interface{ Quiet() error }

// quiet is such a wait, of a thread of its own.
type quiet struct {
	behind uint64 // Order.calls when it began
	ended  chan struct{}
	err    error
}

func (o *Order) beginQuiet(q quieter) *quiet {
	w := &quiet{behind: o.calls.Load(), ended: make(chan struct{})}
	go func() {
		w.err = q.Quiet()
		close(w.ended)
	}()
	return w
}

// waiting reports whether the device still has work of the calls so far, as far as waits have shown. The first question begins one; a call
// that was made since needs another one.
func (o *Order) waiting(q quieter) (busy bool, err error) {
	if o.quiet == nil {
		o.quiet = o.beginQuiet(q)
	}
	select {
	case <-o.quiet.ended:
	default:
		return true, nil
	}
	if err := o.quiet.err; err != nil {
		o.quiet = nil
		return false, err
	}
	if o.quiet.behind != o.calls.Load() {
		o.quiet = o.beginQuiet(q)
		return true, nil
	}
	return false, nil
}

// Ended notes that a call has been made: a wait that began before does not tell of it. Calls that have marks need none.
func (o *Order) Ended() { o.calls.Add(1) }

// settled waits on the host for all calls on the only stream so far.
func (o *Order) settled(q quieter) error {
	w := o.beginQuiet(q)
	timer := time.NewTimer(drainPatience)
	defer timer.Stop()
	select {
	case <-w.ended:
		return w.err
	case <-timer.C:
		return fmt.Errorf("%w: the first call on a second stream, while a stream is captured: earlier work of the device has not ended within %v: expected that it does, or a call outside of captures",
			framework.ErrUnavailable, drainPatience)
	}
}

// recordsBeside reports whether a stream is known to be captured that the default stream waits for: then the driver refuses to say whether that one
// is, which spoils nothing. Of other streams nothing is known.
func recordsBeside(e device.Engine) bool {
	_, err := Capturing(e, 0)
	return err != nil && !errors.Is(err, framework.ErrClosed)
}
