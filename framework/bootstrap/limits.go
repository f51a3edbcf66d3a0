package bootstrap

import (
	"time"

	"golang.org/x/sys/unix"
)

// Bounds that are not configurable: they are about a machine that answers.
const (
	lastWords     = 200 * time.Millisecond // for an announcement after an EOF
	flushTimeout  = 500 * time.Millisecond // of an announcement or goodbye
	lingerTimeout = time.Second            // of Close, for what peers have not read
	watchDelay    = 200 * time.Millisecond // before Recv opens a link to watch
)

// Of a process that is there. Tests, in which a busy machine has a thousand ranks, have more patience.
var (
	handshakeTimeout = 10 * time.Second
	askTimeout       = 2 * time.Second // for a process that listens at the address of rank 0 to say what it is
)

// maxHandshakes is how many connections may be in their handshake at once, if as many files
// may be open.
const maxHandshakes = 1024

// mostHandshakes leaves three quarters of the descriptors of this process to the program.
func mostHandshakes(files uint64) int { return int(max(8, min(maxHandshakes, files/4))) }

// openFiles is how many descriptors this process may have.
func openFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxHandshakes
	}
	return limit.Cur
}

// A host that loses its power or its cable closes no connection. Between hosts
// the kernels therefore exchange heartbeats (TCP keep-alive), and each rank
// looks when the last one came. The kernel answers for a process that is merely
// stopped, which a heartbeat of our own could not tell from a dead host.
//
// With a second between them the job is to end within ten: that leaves one for a rank that looks
// once a second, and one for the announcement to the others.
const missedBeats = 8

const minSecret = 16
