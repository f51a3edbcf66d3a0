// Package streamorder has calls on different streams of a device run one behind the other. Collectives and executors of plans use it.
package streamorder

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Order puts calls on a GPU behind each other that are on different streams: all use the same memory, and count what
// they use of it. Marks do that. A mark costs a microsecond, and keeps kernels from overlapping. So calls have none as long as
// all are on one stream, which is how most programs use a communicator, and captured calls never have. A program may have
// destroyed that one stream when it takes a second one, and a driver must not be asked about such a stream: then a mark
// is set behind all that the device has been given. From there on each call is followed by a mark. The second stream may have
// got the handle of the first, so streams are distinguished by their numbers.
type Order struct {
	mu       sync.Mutex    // Settle asks while calls are made
	mark     device.Mark   // behind the last call that has one
	last     device.Stream // of the last call
	any      bool
	several  bool   // streams: all calls have marks
	id       uint64 // that tells it from later ones with its handle; 0: it is not known
	foreign  bool   // last, the only one so far, is a stream of the program, which may have destroyed it
	marked   bool   // mark is behind the last call that was not captured
	captured bool   // calls are in graphs, and only the program knows when these run
	turn     uint64 // counts the streams that came after another one
	others   uint64 // calls that did not follow by Follow
}

// Follow has a call on a stream begin when the one before it has ended. It reports whether the next one has to learn
// of this one, by Record. When a graph is launched, and where, is the program's affair.
func (o *Order) Follow(d device.Device, s device.Stream) (marks bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	same := o.any && s == o.last && o.numbered(d, s)
	if same && !o.several {
		o.marked = false
		return false, nil
	}
	engine, ok := d.(device.Engine)
	marker, can := d.(device.Marker)
	if !ok || !can {
		o.any, o.last = true, s
		return false, nil
	}
	if capturing, err := Capturing(engine, s); err != nil || capturing {
		o.captured = o.captured || capturing
		return false, err
	}
	if !same {
		if o.any && !o.several {
			if err := o.leave(engine, marker); err != nil {
				return false, err
			}
		}
		o.turn++
		o.any, o.last, o.foreign = true, s, ofProgram(d, s)
		if !o.several {
			o.id = number(d, s, o.foreign)
			o.several = s == ofThread && o.id == 0 // each thread has another one, and the handle is the same for all
		}
	}
	if o.several && o.mark != nil {
		if err := o.mark.Wait(s); err != nil {
			return false, err
		}
	}
	o.marked = false
	if !o.several {
		return false, nil
	}
	if o.mark == nil {
		o.mark, err = marker.NewMark()
	}
	return err == nil, err
}

// leave has the mark behind the last call on the only stream so far.
func (o *Order) leave(engine device.Engine, marker device.Marker) (err error) {
	o.several = true
	if o.mark == nil {
		if o.mark, err = marker.NewMark(); err != nil {
			return err
		}
	}
	closed := !o.foreign && o.id != 0 && number(engine, o.last, false) != o.id
	if o.foreign || closed {
		if err := o.behindAll(); !errors.Is(err, framework.ErrUnsupported) {
			return err
		}
	}
	if o.last == ofThread {
		return fmt.Errorf("%w: calls on default streams of several threads: expected a driver that marks all work of a device, as of CUDA 12.5", framework.ErrUnsupported)
	}
	if closed {
		return nil // the device has no mark behind everything, and knows nothing of the stream any more
	}
	recording, err := Capturing(engine, o.last)
	if err == nil && !recording { // a mark would be one of the capture
		err = o.mark.Record(o.last)
	}
	return err
}

// behindAll has the mark behind all that the device has been given.
func (o *Order) behindAll() error {
	if all, ok := o.mark.(interface{ RecordAll() error }); ok {
		return all.RecordAll()
	}
	return framework.ErrUnsupported
}

// Record marks a call for which Follow has asked for it.
func (o *Order) Record() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.mark.Record(o.last)
	o.marked = err == nil
	return err
}

// Mark sets the mark behind what is on the stream of the last call, which is alive and records nothing into a graph. Pending knows then.
func (o *Order) Mark(d device.Device, s device.Stream) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	marker, ok := d.(device.Marker)
	if !ok {
		return nil
	}
	if o.mark == nil {
		if o.mark, err = marker.NewMark(); err != nil {
			return err
		}
	}
	err = o.mark.Record(s)
	o.marked = err == nil
	return err
}

// Others says how many calls were made so far on the only stream without Follow: a mark that was set when they were fewer may be before
// the last one. The number is read before Pending is called, which then sets the mark behind all that it counts.
func (o *Order) Others(calls uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.others != calls && !o.several { // on several streams there are none
		o.marked = false
	}
	o.others = calls
}

// Pending reports whether something that calls have enqueued is still to be done, and whether that is known
// without a look at a stream that may have been destroyed. It may spoil what other streams of the device record into graphs.
func (o *Order) Pending(d device.Device) (busy, known bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.any && o.foreign && !o.several && !o.marked && !o.captured { // it would spoil a capture that is not at its end
		if err := o.markNow(d); err != nil {
			return false, false, err
		}
	}
	switch {
	case o.marked:
		m, ok := o.mark.(interface{ Query() (bool, error) })
		if !ok {
			return false, false, nil
		}
		done, err := m.Query()
		if done && !o.several {
			o.marked = false // a call that was in progress may be behind it
		}
		return !done, !done || !o.captured, err
	case o.captured:
		return false, false, nil
	case !o.any:
		return false, true, nil
	}
	k, ok := d.(interface{ StreamOpen(device.Stream) bool })
	engine, asks := d.(device.Engine)
	if !ok || !asks || !k.StreamOpen(o.last) {
		return false, false, nil
	}
	state, err := engine.Query(o.last)
	return state == device.StreamBusy, state != device.StreamCapturing, err
}

// markNow sets the mark that calls on the only stream do without, if the driver can.
func (o *Order) markNow(d device.Device) (err error) {
	marker, ok := d.(device.Marker)
	if !ok {
		return nil
	}
	if o.mark == nil {
		if o.mark, err = marker.NewMark(); err != nil {
			return err
		}
	}
	switch err := o.behindAll(); {
	case err == nil:
		o.marked = true
	case !errors.Is(err, framework.ErrUnsupported):
		return err
	}
	return nil
}

// Turn returns another number when another stream has come, as far as that is known: one says that it is, as there was a single stream so far.
func (o *Order) Turn() (turn uint64, one bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turn, !o.several
}

// One reports whether all calls so far were on s, but for captured ones.
func (o *Order) One(s device.Stream) bool {
	_, ok := o.Only(s)
	return ok
}

// Only reports whether all calls so far were on s, and its number if it is one of the program.
func (o *Order) Only(s device.Stream) (id uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.foreign {
		id = o.id
	}
	return id, o.any && !o.several && o.last == s
}

// Capturing reports whether a stream, which is alive, records into a graph.
func Capturing(e device.Engine, s device.Stream) (bool, error) {
	if c, ok := e.(interface {
		Capturing(device.Stream) (bool, error)
	}); ok {
		return c.Capturing(s)
	}
	state, err := e.Query(s)
	return state == device.StreamCapturing, err
}

// numbered reports whether a stream with the handle of the last one is that one, as far as is known.
func (o *Order) numbered(d device.Device, s device.Stream) bool {
	if o.several || o.id == 0 {
		return true
	}
	id := number(d, s, o.foreign)
	return id == o.id || o.foreign && id == 0
}

// number tells a stream from others that had its handle before: one of the program by the driver's number, one of package device
// by that of package device. 0: it is not known.
func number(d any, s device.Stream, foreign bool) uint64 {
	if foreign {
		return streamID(d, s)
	}
	if k, ok := d.(interface{ StreamSerial(device.Stream) uint64 }); ok {
		return k.StreamSerial(s)
	}
	return 0
}

// streamID tells a stream of the program from others that had its handle before; 0: the driver does not say.
func streamID(d any, s device.Stream) uint64 {
	if k, ok := d.(interface{ StreamID(device.Stream) uint64 }); ok {
		return k.StreamID(s)
	}
	return 0
}

// The default streams. ofThread is another stream in each thread that names it, and ends with the thread.
const legacy, ofThread device.Stream = 1, 2

// ofProgram reports whether a stream is neither one that package device has made, nor the default one of a device.
func ofProgram(d device.Device, s device.Stream) bool {
	k, ok := d.(interface{ StreamOpen(device.Stream) bool })
	return ok && s > legacy && !k.StreamOpen(s)
}

// Close releases the mark. Calls before it may still go on.
func (o *Order) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mark == nil {
		return nil
	}
	return o.mark.Close()
}

// drainPatience is how long calls may take to end by themselves.
const drainPatience = 2 * time.Second

// Drain waits until calls no longer use memory that is to be freed, if that is known: only the program knows when graphs run. Calls that do not
// end by themselves are ended by abort.
func (o *Order) Drain(d device.Device, abort func()) error {
	ended, err := o.drained(d)
	if ended || err != nil {
		return err
	}
	abort()
	_, err = o.drained(d)
	return err
}

func (o *Order) drained(d device.Device) (bool, error) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < drainPatience; <-tick.C {
		busy, known, err := o.Pending(d)
		if !busy || !known || err != nil {
			return true, err
		}
	}
	return false, nil
}
