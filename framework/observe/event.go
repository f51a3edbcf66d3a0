package observe

// Event says what a record is about, and in its lowest two bits whether that begins, ends, or takes no time.
type Event uint16

// The phases of an event.
const (
	Begin   Event = 0
	End     Event = 1
	Instant Event = 2
	Total   Event = 3 // of a launch: Time is a duration, and for waits Bytes is their number; of a call, or a kernel: see Parts
	phases  Event = 3
)

// The subjects of records.
const (
	Call      Event = (iota + 1) << 2 // a call of a collective, or of messages
	Chosen                            // its algorithm: Block is the number of the name
	Join                              // the ranks look for each other
	Failed                            // of the job: Peer is the party that failed
	Leave                             // the rank leaves
	Mark                              // of the program: Block is the number of the text
	Trigger                           // a proxy performs a trigger: a put of Bytes, or a signal; Block is how many were in its queue
	Posted                            // a proxy has handed request Call, and all before it to Peer, to a network or a copy engine
	Completed                         // request Call, and all before it to Peer, is done
	Peer                              // another rank is gone
	Span                              // of a call on a stream of a device: see Spanned
)

// Kernels write these, with the clock of the device.
const (
	Put Event = (iota + 32) << 2
	Get
	Signal
	Wait
	Packets
	Reduce
	Copy
	Barrier
	Switch
	Flush
	Kernel   // a launch
	Executor // and from here on the operations of plans, in the order of the format
)

var eventNames = map[Event]string{
	Call: "call", Chosen: "chosen", Join: "join", Failed: "failed", Leave: "leave", Mark: "mark",
	Trigger: "trigger", Posted: "posted", Completed: "completed", Peer: "peer gone", Span: "span",
	Put: "put", Get: "get", Signal: "signal", Wait: "wait", Packets: "packets", Reduce: "reduce", Copy: "copy",
	Barrier: "barrier", Switch: "switch", Flush: "flush", Kernel: "kernel",
}

// Phase returns Begin, End, Instant or Total.
func (e Event) Phase() Event { return e & phases }

// Kind returns the event without its phase.
func (e Event) Kind() Event { return e &^ phases }

// String returns the name of the event without its phase.
func (e Event) String() string {
	if name := eventNames[e.Kind()]; name != "" {
		return name
	}
	return "event"
}
