package setup

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// together is the ranks of one job in this process. One thread may close them one after the other, so they do not wait for each other: each
// leaves its part here, and the last one writes the trace.
type together struct {
	live     map[*recorder]bool
	parts    []*traces.Part // of those that have ended, and of ranks of other processes
	root     *recorder      // of rank 0, if that is here
	gathered bool           // rank 0 has the parts of other processes
}

// here has the jobs of which a rank is in this process, by their names.
var here = struct {
	sync.Mutex
	jobs map[string]*together
}{jobs: map[string]*together{}}

// key tells jobs apart.
func (p *placeInJob) key() string { return p.job + "\x00" + p.id }

// enter adds a rank to those of its job.
func enter(r *recorder) *together {
	here.Lock()
	defer here.Unlock()
	t := here.jobs[r.place.key()]
	if t == nil {
		t = &together{live: map[*recorder]bool{}}
		here.jobs[r.place.key()] = t
	}
	t.live[r] = true
	if r.place.rank == 0 {
		t.root = r
	}
	return t
}

// leave takes a rank away that gives its part to no other one.
func (t *together) leave(r *recorder) {
	here.Lock()
	defer here.Unlock()
	t.remove(r)
}

func (t *together) remove(r *recorder) {
	delete(t.live, r)
	if len(t.live) == 0 && here.jobs[r.place.key()] == t {
		delete(here.jobs, r.place.key())
	}
}

// give leaves the part of a rank for rank 0, if that is in this process.
func (t *together) give(r *recorder, part *traces.Part) bool {
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
func (t *together) gather(r *recorder, part *traces.Part, wait func(others []int) []*traces.Part) {
	here.Lock()
	inside := map[int]bool{0: true}
	for x := range t.live {
		inside[x.place.rank] = true
	}
	for _, p := range t.parts {
		inside[p.Rank()] = true
	}
	here.Unlock()
	var others []int
	for rank := range r.place.size {
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
		trace := traces.Assemble(t.parts)
		t.root.write(trace, "")
		t.root.report(trace)
		return
	}
	var parts []*traces.Part
	for _, p := range t.parts {
		parts = append(parts, p.Copy())
	}
	for x := range t.live {
		x.c.Poll()
		if p := x.c.Part(); p != nil {
			parts = append(parts, p)
		}
	}
	t.root.write(traces.Assemble(parts), "")
}
