package bootstrap

import (
	"fmt"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Watcher reports the death of ranks, and announces that this rank leaves.
//
// Implemented by TCP, Local and the result of Sub. Called by framework/comm.
type Watcher interface {
	// Failed is closed when the job, or the group, cannot go on.
	Failed() <-chan struct{}

	// Err returns why, or nil. It names the culprit: framework.PeerOf(err).
	Err() error

	// Announce tells the group that this rank leaves because of cause. All ranks of the
	// group fail with an error that blames framework.PeerOf(cause), or this rank if the
	// cause blames nobody. It returns when the announcement is on its way.
	Announce(cause error)

	// Leave is an orderly goodbye: whatever happens to this rank afterwards is not a
	// death.
	Leave()
}

// fate is the end of a job or of a group, as one rank knows it. The first cause
// counts.
type fate struct {
	mu   sync.Mutex
	err  error
	done chan struct{}
}

func newFate() *fate { return &fate{done: make(chan struct{})} }

// fail records the first cause and reports whether it was the first.
func (f *fate) fail(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	f.err = err
	close(f.done)
	return true
}

func (f *fate) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// fates are those of a rank: of the whole job, and of the groups within it. The
// end of the job is the end of every group; a group may end alone.
type fates struct {
	job    *fate
	mu     sync.Mutex
	groups map[uint64]*fate
}

func newFates() *fates {
	return &fates{job: newFate(), groups: map[uint64]*fate{}}
}

// group returns the fate of one group; key 0 is the job. A group may have failed
// before this rank made it: an announcement can overtake the call to Sub.
func (f *fates) group(key uint64) *fate {
	if key == 0 {
		return f.job
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[key]
	if g == nil {
		g = newFate()
		f.groups[key] = g
		if err := f.job.cause(); err != nil {
			g.fail(err)
		}
	}
	return g
}

// fail ends a group, or with key 0 the job and all groups.
func (f *fates) fail(key uint64, err error) bool {
	if !f.group(key).fail(err) {
		return false
	}
	if key == 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, g := range f.groups {
			g.fail(err)
		}
	}
	return true
}

// notice is the news of an end, as it goes from rank to rank.
type notice struct {
	group   uint64 // 0: the job
	origin  int    // who says so
	culprit int    // who is to blame; framework.NoPeer for nobody
	class   error  // of what the others report; nil = framework.ErrPeer
	text    string
}

// announcement is the notice of a rank that leaves on an error.
func announcement(group uint64, origin int, cause error) notice {
	n := notice{group: group, origin: origin, culprit: origin, text: "no cause given"}
	if cause != nil {
		n.text = innermost(cause).Error()
	}
	if peer := framework.PeerOf(cause); peer >= 0 {
		n.culprit = peer
	}
	return n
}

// err is what the other ranks report.
func (n notice) err() error {
	said, class := "", n.class
	if n.origin != n.culprit {
		said = fmt.Sprintf(" (reported by rank %d)", n.origin)
	}
	if class == nil {
		class = framework.ErrPeer
	}
	return &framework.Error{Op: "bootstrap", Peer: n.culprit, Err: fmt.Errorf("%w: %s%s", class, strings.TrimPrefix(n.text, class.Error()+": "), said)}
}

// own is what the rank that announced reports itself: its cause, with its class.
func (n notice) own(cause error) error {
	if cause == nil {
		return n.err()
	}
	return &framework.Error{Op: "bootstrap", Peer: n.culprit, Err: cause}
}
