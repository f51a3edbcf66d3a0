package streamorder

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// driver is a device that knows its streams' numbers, and notes what it is asked for.
type driver struct {
	device.Device
	device.Engine
	numbers map[device.Stream]uint64 // the driver's own, of streams of the program
	serials map[device.Stream]uint64 // of those of package device; 0: closed
	capture map[device.Stream]bool
	beside  bool // a stream is captured that the default stream waits for
	did     []string
	busy    bool
}

func (d *driver) StreamID(s device.Stream) uint64     { return d.numbers[s] }
func (d *driver) StreamSerial(s device.Stream) uint64 { return d.serials[s] }
func (d *driver) StreamOpen(s device.Stream) bool     { return s == 0 || d.serials[s] != 0 }
func (d *driver) Capturing(s device.Stream) (bool, error) {
	if d.beside && s == 0 {
		return false, errors.New("the default stream waits for one that is captured")
	}
	return d.capture[s], nil
}
func (d *driver) NewMark() (device.Mark, error) { return &mark{driver: d}, nil }
func (d *driver) note(what string)              { d.did = append(d.did, what) }

type mark struct {
	device.Mark
	driver *driver
}

func (m *mark) Record(device.Stream) error { m.driver.note("record"); return nil }
func (m *mark) RecordAll() error           { m.driver.note("record all"); return nil }
func (m *mark) Wait(device.Stream) error   { m.driver.note("wait"); return nil }
func (m *mark) Query() (bool, error)       { m.driver.note("query"); return !m.driver.busy, nil }
func (m *mark) Close() error               { return nil }

const handle = device.Stream(0x1000)

// A stream that has got the handle of one that was destroyed begins behind it, whoever made the two.
func TestHandleOfAnotherStream(t *testing.T) {
	of := map[string]func(d *driver, id uint64){
		"program": func(d *driver, id uint64) { d.numbers[handle], d.serials[handle] = id, 0 },
		"package": func(d *driver, id uint64) { d.numbers[handle], d.serials[handle] = id, id },
	}
	for first, makeFirst := range of {
		for second, makeSecond := range of {
			t.Run(first+" then "+second, func(t *testing.T) {
				d := &driver{numbers: map[device.Stream]uint64{}, serials: map[device.Stream]uint64{}}
				var o Order
				makeFirst(d, 7)
				for range 2 { // on one stream there are no marks
					if marks, err := o.Follow(d, handle); marks || err != nil || d.did != nil || !o.One(handle) {
						t.Fatalf("marks %v, %v, %v: expected none", marks, err, d.did)
					}
				}
				makeSecond(d, 8)
				marks, err := o.Follow(d, handle)
				if !marks || err != nil || !slices.Equal(d.did, []string{"record all", "wait"}) || o.One(handle) {
					t.Errorf("marks %v, %v, %v: expected one behind everything, which the stream waits for", marks, err, d.did)
				}
			})
		}
	}
}

// The default streams of two threads have one handle, and are two streams: by their numbers, or if these are not known by marks.
func TestDefaultStreamsOfThreads(t *testing.T) {
	d := &driver{numbers: map[device.Stream]uint64{ofThread: 7}, serials: map[device.Stream]uint64{}}
	var o Order
	if marks, err := o.Follow(d, ofThread); marks || err != nil || !o.One(ofThread) {
		t.Fatalf("the first: marks %v, %v: expected none", marks, err)
	}
	if id, ok := o.Only(ofThread); id != 7 || !ok {
		t.Errorf("the only stream is %d, %v: expected 7", id, ok)
	}
	d.numbers[ofThread] = 8
	if marks, err := o.Follow(d, ofThread); !marks || err != nil || !slices.Equal(d.did, []string{"record all", "wait"}) {
		t.Errorf("of another thread: marks %v, %v, %v: expected one behind everything, which the stream waits for", marks, err, d.did)
	}
	unknown := &driver{serials: map[device.Stream]uint64{}}
	o = Order{}
	for _, want := range [][]string{nil, {"record", "wait"}} {
		marks, err := o.Follow(unknown, ofThread)
		if !marks || err != nil || !slices.Equal(unknown.did, want) || o.One(ofThread) {
			t.Fatalf("without numbers: marks %v, %v, %v: expected one, and %v", marks, err, unknown.did, want)
		}
		if err := o.Record(); err != nil {
			t.Fatal(err)
		}
	}
}

// A mark on a stream that is alive tells whether its calls have ended, and touches no other stream.
func TestMarkOnALiveStream(t *testing.T) {
	d := &driver{numbers: map[device.Stream]uint64{handle: 7}, serials: map[device.Stream]uint64{}}
	var o Order
	if _, err := o.Follow(d, handle); err != nil {
		t.Fatal(err)
	}
	if err := o.Mark(d, handle); err != nil {
		t.Fatal(err)
	}
	busy, known, err := o.Pending(d)
	if busy || !known || err != nil || !slices.Equal(d.did, []string{"record", "query"}) {
		t.Errorf("busy %v, known %v, %v after %v: expected the mark of the stream to be asked", busy, known, err, d.did)
	}
}

// A call in a graph waits for nothing, and Pending does not claim to know when it ends.
func TestCallInAGraph(t *testing.T) {
	d := &driver{numbers: map[device.Stream]uint64{handle: 7}, serials: map[device.Stream]uint64{}, capture: map[device.Stream]bool{handle: true}}
	var o Order
	marks, err := o.Follow(d, handle)
	if marks || err != nil || d.did != nil {
		t.Errorf("marks %v, %v, %v: expected none", marks, err, d.did)
	}
	if _, known, err := o.Pending(d); known || err != nil || d.did != nil {
		t.Errorf("known %v, %v, %v: expected that nothing is asked", known, err, d.did)
	}
}

// A call that does not end by itself is ended, and only then is its memory given up.
func TestDrain(t *testing.T) {
	d := &driver{numbers: map[device.Stream]uint64{handle: 7}, serials: map[device.Stream]uint64{}, busy: true}
	var o Order
	if _, err := o.Follow(d, handle); err != nil {
		t.Fatal(err)
	}
	aborts := 0
	for range 2 {
		if err := o.Drain(d, func() { aborts++; d.busy = false }); err != nil || d.busy || aborts != 1 {
			t.Errorf("%v, %d aborts: expected one", err, aborts)
		}
	}
}

// quieting is a driver that waits for all its streams, until end.
type quieting struct {
	*driver
	end   chan error
	began chan struct{}
}

func (d *quieting) Quiet() error {
	d.began <- struct{}{}
	return <-d.end
}

func newQuieting() *quieting {
	return &quieting{
		driver: &driver{numbers: map[device.Stream]uint64{handle: 7}, serials: map[device.Stream]uint64{}, capture: map[device.Stream]bool{}},
		end:    make(chan error, 1), began: make(chan struct{}, 8),
	}
}

// Where the device waits for all its streams, whether calls have ended is known without a mark behind everything, which spoils captures.
func TestPendingLeavesCapturesAlone(t *testing.T) {
	d := newQuieting()
	var o Order
	if _, err := o.Follow(d, handle); err != nil {
		t.Fatal(err)
	}
	ask := func(what string, want bool) {
		t.Helper()
		for { // until the wait has ended, if it does
			busy, known, err := o.Pending(d)
			if !known || err != nil {
				t.Fatalf("%s: known %v, %v", what, known, err)
			}
			if busy == want {
				return
			}
			runtime.Gosched()
		}
	}
	begins := func(what string) {
		t.Helper()
		for len(d.began) == 0 {
			if busy, known, err := o.Pending(d); !busy || !known || err != nil {
				t.Fatalf("%s: busy %v, known %v, %v: expected another wait", what, busy, known, err)
			}
			runtime.Gosched()
		}
		<-d.began
	}
	begins("a call")
	ask("it goes on", true)
	o.Ended() // a call that was being made
	d.end <- nil
	begins("a call was made behind its beginning")
	d.end <- nil
	ask("all has ended", false)
	ask("and it stays so", false)
	if len(d.began) != 0 {
		t.Error("a question without a call before it waits again")
	}
	if _, err := o.Follow(d, handle); err != nil {
		t.Fatal(err)
	}
	begins("another call")
	d.end <- errors.New("the device is lost")
	for {
		busy, _, err := o.Pending(d)
		if err != nil {
			break
		}
		if !busy {
			t.Fatal("a wait that failed counts as the end of calls")
		}
		runtime.Gosched()
	}
	if d.did != nil {
		t.Errorf("%v: expected that the driver is asked for nothing else", d.did)
	}
}

// Beside a capture that is known, a first call on a second stream waits on the host; without one, and where the device cannot, a mark does.
func TestSecondStreamBesideACapture(t *testing.T) {
	const second = device.Stream(0x2000)
	for name, c := range map[string]struct {
		beside bool
		quiet  error
		want   []string
	}{
		"a capture":                         {true, nil, nil},
		"none":                              {false, nil, []string{"record all", "wait"}},
		"a device that cannot wait for all": {true, framework.ErrUnsupported, []string{"record all", "wait"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newQuieting()
			var o Order
			if _, err := o.Follow(d, handle); err != nil {
				t.Fatal(err)
			}
			d.beside = c.beside
			d.end <- c.quiet
			marks, err := o.Follow(d, second)
			if !marks || err != nil || !slices.Equal(d.did, c.want) {
				t.Errorf("marks %v, %v, %v: expected %v", marks, err, d.did, c.want)
			}
			if waited := len(d.began) == 1; waited != c.beside {
				t.Errorf("waited for the device: %v", waited)
			}
		})
	}
	// A wait that failed is no order: the next call tries again.
	d := newQuieting()
	var o Order
	if _, err := o.Follow(d, handle); err != nil {
		t.Fatal(err)
	}
	d.beside = true
	lost := fmt.Errorf("lost")
	for range 2 {
		d.end <- lost
		if _, err := o.Follow(d, second); !errors.Is(err, lost) || !o.One(handle) {
			t.Errorf("%v: expected the error of the device, and no second stream", err)
		}
	}
}
