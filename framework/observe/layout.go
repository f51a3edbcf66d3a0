package observe

import "unsafe"

// The parts of a region.
const (
	boardsOffset = 4096
	maxBoards    = 64
	ringsOffset  = boardsOffset + maxBoards*128
	maxRings     = 24
	namesOffset  = ringsOffset + 2048
	maxNames     = 128
	nameBytes    = 32
	eventsOffset = namesOffset + maxNames*nameBytes + 2048

	// RingRecords is how many records a ring has.
	RingRecords = 4096

	ringBytes = RingRecords * 32

	dumpOffset = eventsOffset + maxRings*ringBytes
	dumpBytes  = 32 << 10

	// RegionBytes is the size of the region of a rank. Pages that nothing was written to take no memory.
	RegionBytes = dumpOffset + dumpBytes
)

const (
	magic   = 0x56524553424f4c43 // tells a region from other memory
	version = 6
)

// The state of a rank.
const (
	StateFree    uint32 = iota // no communicator has taken the region
	StateJoining               // it looks for the other ranks
	StateRunning
	StateFailed // the job has failed: Failure says of what
	StateLeft   // it has left in an orderly way
)

// stateNames are the words for them.
var stateNames = []string{"free", "joining", "running", "failed", "left"}

// StateName is the word for a state of a rank.
func StateName(state uint32) string {
	if int(state) < len(stateNames) {
		return stateNames[state]
	}
	return "unknown"
}

// header is the first page. Words that change while readers of other processes look are written by atomic stores.
type header struct {
	magic     uint64
	version   uint32
	on        uint32 // the switch
	owner     uint64 // process of the rank; 0: the region is free
	state     uint32
	rank      int32
	size      int32
	unwritten uint32 // writers that got no ring
	started   int64  // Unix time
	origin    int64  // the clock of the rank at the same moment
	ticked    int64  // the clock of the rank at the last look of its sampler
	failedAt  int64
	culprit   int32
	_         int32
	dumpAsked uint64 // how often a reader has asked for a dump
	dumpMade  uint64 // how many of these were served; the text is of the last one
	clockTurn uint64 // odd while the clock is written
	clock     Clock
	job       [64]byte
	host      [64]byte
	hostID    [64]byte
	device    [64]byte
	program   [128]byte
	failure   [768]byte
	taken     [maxRings]uint64 // records of each ring that are of ranks which had the region before
}

// board is the state of one communicator: what its rank has begun last.
type board struct {
	begun     uint64
	ended     uint64
	bytes     uint64 // of the call begun last
	total     uint64 // bytes of all calls that have ended
	since     int64  // when the sampler first saw that call
	seen      uint64 // which call the sampler saw
	kind      uint32
	algorithm uint32 // number of its name
	rank      int32
	size      int32
	state     uint32 // 0: free
	ring      int32
	turn      uint64 // which communicator of the rank has the place
	at        int64  // when the call that is in progress began, if records are wanted; else 0
	name      [40]byte
}

// The state of a ring.
const (
	ringFree  uint32 = iota
	ringTaken        // somebody is about to use it
	ringUsed
	ringEnded // its writer has ended; the records stay until another one takes it
)

// ring is the head of one ring.
type ring struct {
	state  uint32
	shared uint32 // not 0: several threads write records, which say in which lap
	next   uint64 // records written
	base   uint64 // records that are of writers which had it before
	name   [40]byte
}

// Record is one event. Kernels write 32 bytes too, with 16 bits for the peer and 16 for the lap: framework/kernel/include/mscclpp/records.h.
type Record struct {
	Time  int64  // of the clock of the writer, in ns
	Call  uint64 // the number of the call, and of its communicator in the upper 16 bits; or a channel
	Bytes uint64
	Event Event
	Block uint16 // of the kernel; for a call its collective; for a name its number
	Peer  int32  // -1: none
}

// The layout is that of kernels and of loops in C.
const (
	_ = -(unsafe.Sizeof(Record{}) ^ 32)
	_ = -(unsafe.Sizeof(board{}) ^ 128)
	_ = -(unsafe.Sizeof(ring{}) ^ 64)
	_ = uint(boardsOffset - unsafe.Sizeof(header{}))
	_ = -(unsafe.Offsetof(header{}.on) ^ 12)
	_ = -(unsafe.Offsetof(header{}.owner) ^ 16)
	_ = -(unsafe.Offsetof(ring{}.next) ^ 8)
)

// CallOf takes the number of a call apart.
func CallOf(call uint64) (board int, sequence uint64) { return int(call >> 48), call & (1<<48 - 1) }

func callOf(board int, sequence uint64) uint64 { return uint64(board)<<48 | sequence&(1<<48-1) }
