package simulate

// simulation executes tasks over resources. Tasks are added with all that they wait
// for; run then advances the clock from event to event. A resource that is free takes,
// of the tasks that are ready, the one that was added first: the earliest piece.
// A task that was begun is finished.
type simulation struct {
	tasks  []task
	edges  []edge
	works  []bool    // by resource: has a task
	queues [][]int32 // by resource: heap of ready tasks, by number
	busy   []float64 // by resource: how long it worked
	events []event   // heap by time
}

// event is a task that becomes ready or, with numbers behind those of the tasks, a
// resource that becomes free. At the same time tasks come first, in their order.
type event struct {
	at     float64
	number int32
}

type task struct {
	resource       int32
	waits          int32 // tasks before it that have not ended
	first          int32 // of the edges to those that wait for it; -1 none
	occupies, late float64
	ready          float64
}

type edge struct{ to, next int32 }

func newSimulation(resources int) *simulation {
	return &simulation{works: make([]bool, resources), queues: make([][]int32, resources), busy: make([]float64, resources)}
}

// add makes a task that occupies a resource for a time and whose result arrives a
// latency later. It starts when all before have arrived, and not before the given
// time. It returns the number of the task.
func (s *simulation) add(resource int, occupies, late, notBefore float64, before ...int32) int32 {
	id := int32(len(s.tasks))
	s.tasks = append(s.tasks, task{
		resource: int32(resource), waits: int32(len(before)), first: -1, occupies: occupies, late: late, ready: notBefore,
	})
	for _, b := range before {
		s.edges = append(s.edges, edge{to: id, next: s.tasks[b].first})
		s.tasks[b].first = int32(len(s.edges) - 1)
	}
	return id
}

// run returns when the last result arrives.
func (s *simulation) run() float64 {
	for id := range s.tasks {
		if s.tasks[id].waits == 0 {
			push(&s.events, event{s.tasks[id].ready, int32(id)}, sooner)
		}
	}
	end := 0.0
	for len(s.events) > 0 {
		e := pop(&s.events, sooner)
		if int(e.number) < len(s.tasks) {
			r := s.tasks[e.number].resource
			if s.works[r] {
				push(&s.queues[r], e.number, lower)
			} else {
				end = max(end, s.start(e.number, e.at))
			}
			continue
		}
		r := int(e.number) - len(s.tasks)
		s.works[r] = false
		if len(s.queues[r]) > 0 {
			end = max(end, s.start(pop(&s.queues[r], lower), e.at))
		}
	}
	return end
}

// start gives a task its resource, and returns when its result arrives.
func (s *simulation) start(id int32, at float64) float64 {
	t := &s.tasks[id]
	s.works[t.resource] = true
	s.busy[t.resource] += t.occupies
	push(&s.events, event{at + t.occupies, int32(len(s.tasks)) + t.resource}, sooner)
	arrives := at + t.occupies + t.late
	for e := t.first; e >= 0; e = s.edges[e].next {
		to := s.edges[e].to
		waiting := &s.tasks[to]
		waiting.ready = max(waiting.ready, arrives)
		if waiting.waits--; waiting.waits == 0 {
			push(&s.events, event{waiting.ready, to}, sooner)
		}
	}
	return arrives
}

func sooner(a, b event) bool { return a.at < b.at || a.at == b.at && a.number < b.number }
func lower(a, b int32) bool  { return a < b }

// push and pop keep the least element of a heap first.
func push[T any](heap *[]T, x T, less func(a, b T) bool) {
	h := append(*heap, x)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !less(h[i], h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*heap = h
}

func pop[T any](heap *[]T, less func(a, b T) bool) T {
	h := *heap
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		least := 2*i + 1
		if least >= last {
			break
		}
		if least+1 < last && less(h[least+1], h[least]) {
			least++
		}
		if !less(h[least], h[i]) {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	*heap = h
	return top
}
