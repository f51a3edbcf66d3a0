package observe

import (
	_ "embed"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

// headerForC is embedded so that builds of packages that include it notice when it changes.
//
//go:embed observe.h
var headerForC string

// ofRank is the region of the rank whose plugin this process is.
var ofRank = sync.OnceValue(func() region {
	path, number, found := strings.Cut(os.Getenv(EnvRegion), ":")
	n, err := strconv.Atoi(number)
	if !found || err != nil || n < 0 {
		return region{}
	}
	m, err := openMemory(path, true)
	if err != nil {
		return region{} // the rank is in a place of its own
	}
	if n >= m.regions() || m.region(n).header().magic != magic || m.region(n).header().version != version {
		m.close()
		return region{}
	}
	return m.region(n)
})

// Loop is the writer of a loop that performs triggers. It has a ring while records are wanted, and gives it back when they are not: a rank has
// as many rings as it has proxies, now and then. Wanted, Write and Rest are for a loop in Go; one in C has the switch and a Ring.
type Loop struct {
	On   unsafe.Pointer // the switch of the rank, as mscclpp_observe_ring has it
	at   region
	name string

	mu   sync.Mutex // of writers in Go
	ring *ring      // nil: it has none
	next *uint64
	all  *[RingRecords]Record
	none bool // there was none to be had
	over bool // the loop has ended
}

// ForPlugin returns the writer of a loop of a plugin. Nil: no rank is observed.
func ForPlugin(name string) *Loop {
	at := ofRank()
	if at.at == nil {
		return nil
	}
	return &Loop{On: unsafe.Pointer(&at.header().on), at: at, name: name}
}

// Loop returns the writer of a loop of the rank itself. Nil: the rank is not observed.
func (r *Rank) Loop(name string) *Loop {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.flowing = true
	return &Loop{On: unsafe.Pointer(&r.at.header().on), at: r.at, name: name}
}

// Wanted reports whether records are wanted. It costs a load and a branch. The nil Loop wants none.
func (l *Loop) Wanted() bool { return l != nil && atomic.LoadUint32((*uint32)(l.On)) != 0 }

// Write writes a record with the time of now, where Wanted reports true. Several threads may do so.
func (l *Loop) Write(e Event, call, bytes uint64, block uint16, peer int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.take() {
		return
	}
	l.all[*l.next%RingRecords] = Record{Time: Now(), Call: call, Bytes: bytes, Event: e, Block: block, Peer: int32(peer)}
	atomic.StoreUint64(l.next, *l.next+1)
}

// take takes a ring, unless the loop has one.
func (l *Loop) take() bool {
	if l.ring != nil || l.none || l.over {
		return l.ring != nil
	}
	i := l.at.takeRing(l.name)
	if l.none = i < 0; l.none {
		return false
	}
	l.ring = l.at.ring(i)
	l.next, l.all = &l.ring.next, (*[RingRecords]Record)(unsafe.Pointer(l.at.record(i, 0)))
	return true
}

// Ring takes a ring for a loop in C, which gives it back by storing mscclpp_observe_ended in its state. All are in shared memory, to which
// C may keep pointers. Nil: there is none.
func (l *Loop) Ring() (next, events, state unsafe.Pointer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.none = false; !l.take() {
		return nil, nil, nil
	}
	r := l.ring
	l.ring = nil // it is the loop's now
	return unsafe.Pointer(l.next), unsafe.Pointer(l.all), unsafe.Pointer(&r.state)
}

// Rest gives the ring back unless records are wanted: the loop has nothing to do.
func (l *Loop) Rest() {
	if l != nil && !l.Wanted() {
		l.release(false)
	}
}

// Close gives the ring back. The loop has ended.
func (l *Loop) Close() {
	if l != nil {
		l.release(true)
	}
}

func (l *Loop) release(over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ring != nil {
		atomic.StoreUint32(&l.ring.state, ringEnded)
	}
	l.ring, l.none, l.over = nil, false, l.over || over
}
