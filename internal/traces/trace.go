// Package traces makes traces of the records of ranks: it reads the memory in which ranks write them, and writes, reads and tells
// traces.
package traces

// Trace holds the records of all ranks of a job. All times are those of the clock of rank 0, in ns.
type Trace struct {
	Job   string
	Ranks []*Rank
}

// Rank is one rank of a trace.
type Rank struct {
	Rank, Size   int
	Host, Device string
	PID          int
	State        string // running, …
	Failure      string
	Culprit      int    // of the failure; -1: none is known
	ClockError   int64  // ns; 0: the clock is that of rank 0
	Lost         uint64 // records that were overwritten before they were read
	Dropped      uint64 // the oldest ones, of which there were more than are kept
	Calls        []Call
	Moments      []Moment
	Triggers     []Trigger
	Transfers    []Transfer
	Puts         []Put
	Waits        []Wait
	Launches     []Launch
	Pieces       []Piece
	Signs        []Sign
	Spans        []Span
}

// Call is one call of a rank.
type Call struct {
	Comm      string
	Number    uint64 // among the calls of the communicator
	Kind      string
	Algorithm string
	Bytes     uint64
	Begin     int64
	Chosen    int64
	End       int64 // 0: it has not ended
	Guess     bool  // there are no records of it: its times are to a tenth of a second

	// From the calls of the others: which rank began it last, and when. Late is -1 where there are no others.
	Late int
	Met  int64
}

// meeting is one call, of all ranks.
type meeting struct {
	comm   string
	number uint64
}

func meetingOf(c *Call) meeting { return meeting{c.Comm, c.Number} }

// Waited is how long the rank waited in the call for the rank that came last.
func (c *Call) Waited() int64 { return max(0, c.Met-c.Chosen) }

// Moment is an event that takes no time, or of which the end is not known.
type Moment struct {
	Name string
	At   int64
	Peer int // -1: none
}

// Trigger is one request to a proxy.
type Trigger struct {
	Writer     string // the proxy
	Begin, End int64
	Bytes      uint64
	Peer       int // rank of the communicator; -1: it is not known
	Queued     int // requests that were in the queue, with this one
}

// Transfer is what a proxy has had under way to one peer: from the first request that was not complete until all were.
type Transfer struct {
	Writer     string
	Peer       int
	Begin, End int64
	Requests   int
	Bytes      uint64
}

// Channel is one direction of a channel between two ranks. Ranks are those of the job where they are known, else those of the
// communicator.
type Channel struct {
	Comm      string
	Transport string
	Peer      int
	Semaphore int // of the receiver
}

// Put is what a rank has sent over a channel.
type Put struct {
	Channel
	At     int64
	Bytes  uint64
	Number uint32 // of the signal that comes with it, or behind it
	Signal bool   // it comes with it

	// From the waits of the others: when the wait ended to which it leads; 0: there is none.
	Got int64
}

// Wait is what a rank has waited for over a channel.
type Wait struct {
	Channel
	Begin, End int64
	Number     uint32

	// From the puts of the others: when that was sent for which it waited, and its bytes; 0: it is not known.
	Sent  int64
	Bytes uint64
}

// Span is a call on a stream of a device, by the clock of the device: from when the stream came to it until the stream was done with it.
type Span struct {
	Comm       string
	Number     uint64 // of the call; in a graph of the one that was captured
	Stream     int    // of the communicator, in the order of their first calls
	Graph      bool   // it is one launch of a graph
	Begin, End int64
	Off        int64 // by how much its times may be wrong, in ns

	// From the spans of the others: which rank came to it last, and when. Late is -1 where the rank itself did, or none is known to
	// have come later.
	Late int
	Met  int64
}

// Waited is how long it waited on the device for the rank that came last.
func (s *Span) Waited() int64 {
	if s.Late < 0 {
		return 0
	}
	return s.Met - s.Begin
}
