package streamorder

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// driver is a device that knows its streams' numbers, and notes what it is asked for.
type driver struct {
	device.Device
	device.Engine
	numbers map[device.Stream]uint64 // the driver's own, of streams of the program
	serials map[device.Stream]uint64 // of those of package device; 0: closed
	capture map[device.Stream]bool
	did     []string
	busy    bool
}

func (d *driver) StreamID(s device.Stream) uint64         { return d.numbers[s] }
func (d *driver) StreamSerial(s device.Stream) uint64     { return d.serials[s] }
func (d *driver) StreamOpen(s device.Stream) bool         { return s == 0 || d.serials[s] != 0 }
func (d *driver) Capturing(s device.Stream) (bool, error) { return d.capture[s], nil }
func (d *driver) NewMark() (device.Mark, error)           { return &mark{driver: d}, nil }
func (d *driver) note(what string)                        { d.did = append(d.did, what) }

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

// A mark from before calls that were made without Follow says nothing of these.
func TestMarkBeforeCallsOfOthers(t *testing.T) {
	d := &driver{numbers: map[device.Stream]uint64{handle: 7}, serials: map[device.Stream]uint64{}, busy: true}
	var o Order
	if _, err := o.Follow(d, handle); err != nil {
		t.Fatal(err)
	}
	for _, calls := range []uint64{1, 1, 2} {
		o.Others(calls)
		if busy, known, err := o.Pending(d); !busy || !known || err != nil {
			t.Fatalf("busy %v, known %v, %v: expected a device that is busy", busy, known, err)
		}
	}
	if want := []string{"record all", "query", "query", "record all", "query"}; !slices.Equal(d.did, want) {
		t.Errorf("%v: expected %v", d.did, want)
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
