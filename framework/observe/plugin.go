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

// Loop is a ring for a loop in a plugin. It has Wanted and Write for one in Go, and addresses for one in C, as
// mscclpp_observe_ring has it. It is in shared memory, to which C may keep pointers.
type Loop struct {
	On     unsafe.Pointer
	Next   unsafe.Pointer
	Events unsafe.Pointer
	ring   *ring
	mu     sync.Mutex // of writers in Go
}

// ForPlugin gives a loop of a plugin a ring among those of its rank. Nil: there is none.
func ForPlugin(name string) *Loop {
	at := ofRank()
	if at.at == nil {
		return nil
	}
	i := at.takeRing(name)
	if i < 0 {
		return nil
	}
	g := at.ring(i)
	return &Loop{On: unsafe.Pointer(&at.header().on), Next: unsafe.Pointer(&g.next), Events: unsafe.Pointer(at.record(i, 0)), ring: g}
}

// Wanted reports whether records are wanted. It costs a load and a branch. The nil Loop wants none.
func (l *Loop) Wanted() bool { return l != nil && atomic.LoadUint32((*uint32)(l.On)) != 0 }

// Write writes a record with the time of now, where Wanted reports true. Several threads may do so.
func (l *Loop) Write(e Event, call, bytes uint64, block uint16, peer int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := (*uint64)(l.Next)
	records := (*[RingRecords]Record)(l.Events)
	records[*next%RingRecords] = Record{Time: Now(), Call: call, Bytes: bytes, Event: e, Block: block, Peer: int32(peer)}
	atomic.StoreUint64(next, *next+1)
}

// Close lets another writer have the ring. The loop has ended.
func (l *Loop) Close() {
	if l != nil {
		atomic.StoreUint32(&l.ring.state, 3)
	}
}
