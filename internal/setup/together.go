package setup

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// together is the ranks of one job in this process. One thread may close them one after the other, so they do not wait for each other: each
// leaves its part here, and the last one writes the trace.
type together struct {
	job      string
	live     map[*member]bool
	parts    []*traces.Part // of those that have ended, and of ranks of other processes
	root     *member        // rank 0, if that is here
	gathered bool           // rank 0 has the parts of other processes
}

// member is a rank of this process that is recorded.
type member struct {
	rank, size int
	now        func() *traces.Part             // its part so far; nil: there is none
	write      func(t *traces.Trace, all bool) // of rank 0
}

// here has the jobs of which a rank is in this process, by their names.
var here = struct {
	sync.Mutex
	jobs map[string]*together
}{jobs: map[string]*together{}}

// enter adds a rank to those of its job.
func enter(job string, r *member) *together {
	here.Lock()
	defer here.Unlock()
	t := here.jobs[job]
	if t == nil {
		t = &together{job: job, live: map[*member]bool{}}
		here.jobs[job] = t
	}
	t.live[r] = true
	if r.rank == 0 {
		t.root = r
	}
	return t
}

// leave takes a rank away that gives its part to no other one.
func (t *together) leave(r *member) {
	here.Lock()
	defer here.Unlock()
	t.remove(r)
}

func (t *together) remove(r *member) {
	delete(t.live, r)
	if len(t.live) == 0 && here.jobs[t.job] == t {
		delete(here.jobs, t.job)
	}
}

// give leaves the part of a rank for rank 0, if that is in this process.
func (t *together) give(r *member, part *traces.Part) bool {
	here.Lock()
	defer here.Unlock()
	t.remove(r)
	if t.root == nil {
		return false
	}
	if t.parts = append(t.parts, part); t.gathered {
		t.write()
	}
	return true
}

// gather adds the part of rank 0, and those of the ranks of other processes, for which it waits.
func (t *together) gather(r *member, part *traces.Part, wait func(others []int) []*traces.Part) {
	here.Lock()
	inside := map[int]bool{0: true}
	for x := range t.live {
		inside[x.rank] = true
	}
	for _, p := range t.parts {
		inside[p.Rank()] = true
	}
	here.Unlock()
	var others []int
	for rank := range r.size {
		if !inside[rank] {
			others = append(others, rank)
		}
	}
	parts := wait(others)
	here.Lock()
	defer here.Unlock()
	t.parts, t.gathered = append(append(t.parts, part), parts...), true
	t.remove(r)
	t.write()
}

// write writes the trace, and again once a rank of this process has ended later: it may be that it never does.
func (t *together) write() {
	if len(t.live) == 0 {
		t.root.write(traces.Assemble(t.parts), true)
		return
	}
	var parts []*traces.Part
	for _, p := range t.parts {
		parts = append(parts, p.Copy())
	}
	for x := range t.live {
		if p := x.now(); p != nil {
			parts = append(parts, p)
		}
	}
	t.root.write(traces.Assemble(parts), false)
}
