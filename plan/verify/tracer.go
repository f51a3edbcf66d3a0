package verify

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Event is one operation of one launch. Time has no unit: an event is one later than all that it follows.
type Event struct {
	Rank  int           `json:"rank"`
	Block int           `json:"block"`     // of an engine: the block that asked
	Port  int           `json:"port"`      // the port channel of the engine that acts, -1 where the block does
	Index int           `json:"operation"` // in the block's list
	Inner int           `json:"inner"`     // in the pipeline's list, -1 outside
	Turn  int           `json:"turn"`      // of the pipeline
	Name  schema.OpName `json:"name"`

	Ready int   `json:"ready"`           // the time at which its thread came to it
	Time  int   `json:"time"`            // the time at which it ran
	After []int `json:"after,omitempty"` // events of other threads that it follows, by position
}

// tracer records events. A nil one records nothing.
type tracer struct {
	events []Event
	acted  map[actor]int // the last event of a thread in a step
}

type actor struct {
	thread int
	step   *step
}

// enter begins an event of a thread.
func (x *tracer) enter(t *thread, s *step) {
	if x == nil {
		return
	}
	e := Event{Rank: s.rank, Block: s.block, Port: -1, Index: s.index, Inner: s.inner, Turn: s.turn, Name: s.op.Name, Ready: t.time, Time: t.time}
	if t.kind == engineThread {
		e.Port = t.index
	}
	t.event = len(x.events)
	t.time++
	x.events = append(x.events, e)
	x.acted[actor{t.id, s}] = t.event
}

// follow says that the current event of a thread follows another one.
func (x *tracer) follow(t *thread, event int) {
	if x == nil || event < 0 || event >= len(x.events) {
		return
	}
	e := &x.events[t.event]
	if !slices.Contains(e.After, event) {
		e.After = append(e.After, event)
	}
	e.Time = max(e.Time, x.events[event].Time+1)
	t.time = e.Time + 1
}

// followStep says that the current event of a thread follows what another thread did in a step.
func (x *tracer) followStep(t *thread, a *access) {
	if x == nil || a.thread == t || a.step == nil {
		return
	}
	if event, ok := x.acted[actor{a.thread.id, a.step}]; ok {
		x.follow(t, event)
	}
}

// together lets threads go on from a barrier at one time.
func (x *tracer) together(threads []*thread) {
	if x == nil {
		return
	}
	last := 0
	for _, t := range threads {
		last = max(last, t.time)
	}
	for _, t := range threads {
		t.arrival, t.time = t.time, last
	}
}

// waited corrects the time at which a thread came to a barrier.
func (x *tracer) waited(t *thread) {
	if x != nil {
		x.events[t.event].Ready = t.arrival
	}
}
