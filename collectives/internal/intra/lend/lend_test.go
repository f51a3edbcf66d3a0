package lend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

var errDead = errors.New("dead")

// wire is a communicator of ranks in this process.
type wire struct {
	size  int
	boxes map[[2]int]chan []byte // from, to
	done  chan struct{}
}

func newWire(size int) *wire {
	w := &wire{size: size, boxes: map[[2]int]chan []byte{}, done: make(chan struct{})}
	for a := range size {
		for b := range size {
			w.boxes[[2]int{a, b}] = make(chan []byte, 100)
		}
	}
	return w
}

// end is rank of a wire, and the owner of memory.
type end struct {
	*wire
	rank  int
	whole *job
	Lender

	mu     sync.Mutex
	busy   bool
	has    string // "", "mapped", "own"
	held   kind   // messages that wait
	answer chan struct{}
}

func (e *end) Rank() int             { return e.rank }
func (e *end) Size() int             { return e.size }
func (e *end) Done() <-chan struct{} { return e.done }
func (e *end) Err() error            { return errDead }

func (e *end) SendAside(ctx context.Context, to int, b []byte) error {
	e.mu.Lock()
	held, answer := e.held, e.answer
	e.mu.Unlock()
	if kind(b[0]) == held {
		select {
		case <-answer:
		case <-e.done:
		}
	}
	select {
	case e.boxes[[2]int{e.rank, to}] <- slices.Clone(b):
		return nil
	case <-e.done:
		return errDead
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *end) RecvAside(ctx context.Context, from int) ([]byte, error) {
	select {
	case b := <-e.boxes[[2]int{from, e.rank}]:
		return b, nil
	case <-e.done:
		return nil, errDead
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// holds keeps back what the rank says, until the channel is closed.
func (e *end) holds(t *testing.T, k kind) chan struct{} {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held, e.answer = k, make(chan struct{})
	return e.answer
}

func (e *end) Idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.busy
}

func (e *end) Unmap() error { return e.becomes("mapped", "own") }

func (e *end) Free() error {
	for _, x := range e.whole.ends {
		x.mu.Lock()
		mapped := x.has == "mapped"
		x.mu.Unlock()
		if mapped {
			e.whole.t.Errorf("rank %d frees what rank %d has mapped", e.rank, x.rank)
		}
	}
	return e.becomes("own", "")
}

func (e *end) becomes(from, to string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.has != from {
		e.whole.t.Errorf("rank %d: memory is %q, expected %q", e.rank, e.has, from)
	}
	e.has = to
	return nil
}

func (e *end) state(busy bool) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = busy
	return e.has
}

// job is all ranks of a communicator.
type job struct {
	t    *testing.T
	ends []*end
}

// newJob has communicators of one device each for every rank: as processes would.
func newJob(t *testing.T, size int, id uint64) *job {
	j, w := &job{t: t}, newWire(size)
	for r := range size {
		j.ends = append(j.ends, &end{wire: w, rank: r, whole: j})
	}
	j.start(id)
	t.Cleanup(func() { j.each(func(e *end) { e.Stop() }) })
	return j
}

func (j *job) start(id uint64) {
	for _, e := range j.ends {
		e.has = "mapped"
		e.Start(e, e, device(e.rank), id)
		e.Offer(true)
	}
}

func device(rank int) framework.Device { return framework.Device{Type: "test", Index: rank} }

func (j *job) each(f func(e *end)) {
	var all sync.WaitGroup
	for _, e := range j.ends {
		all.Go(func() { f(e) })
	}
	all.Wait()
}

// asked has a communicator of all ranks need memory. It returns what the ranks of j have then.
func (j *job) asked() (has []string) {
	j.each(func(e *end) { Ask(j.t.Context(), device(e.rank), nil) })
	for _, e := range j.ends {
		has = append(has, e.state(false))
	}
	return has
}

func (j *job) expect(what string, got []string, want string) {
	j.t.Helper()
	for r, has := range got {
		if has != want {
			j.t.Errorf("%s: the memory of rank %d is %q, expected %q", what, r, has, want)
		}
	}
}

func TestIdleMemoryIsGivenUp(t *testing.T) {
	for _, size := range []int{2, 3, 8} {
		j := newJob(t, size, 1)
		j.expect("idle", j.asked(), "")
		j.each(func(e *end) {
			if err := e.Enter(); err != nil {
				t.Error(err)
			}
			e.Leave()
		})
	}
}

// All ranks keep the memory that one of them needs, and calls go on.
func TestMemoryInUseIsKept(t *testing.T) {
	for name, use := range map[string]func(e *end){
		"work is enqueued":      func(e *end) { e.state(true) },
		"a call is being made":  func(e *end) { _ = e.Enter() },
		"graphs use the memory": func(e *end) { e.Offer(false) },
		"it was given up often": func(e *end) { e.turns, e.used = mostTurns, time.Now() },
		"a rank has left":       func(e *end) { e.Stop() },
	} {
		for _, who := range []int{0, 2} {
			t.Run(fmt.Sprintf("%s on rank %d", name, who), func(t *testing.T) {
				j := newJob(t, 3, 1)
				use(j.ends[who])
				j.expect(name, j.asked(), "mapped")
				j.each(func(e *end) {
					if err := e.Enter(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// A communicator that was in use gives its memory up later, and one that was given up often after a while.
func TestMemoryIsGivenUpLater(t *testing.T) {
	j := newJob(t, 2, 1)
	j.ends[1].state(true)
	j.expect("busy", j.asked(), "mapped")
	for _, e := range j.ends {
		e.turns, e.used = mostTurns, time.Now().Add(-2*unused)
	}
	j.expect("unused for long", j.asked(), "")
	if e := j.ends[0]; e.turns != 0 {
		t.Errorf("%d turns, expected none after a long time", e.turns)
	}
}

// until waits for something that another goroutine does.
func (e *end) until(is func(l *Lender) bool) {
	for {
		e.Lender.mu.Lock()
		now := is(&e.Lender)
		e.Lender.mu.Unlock()
		if now {
			return
		}
		runtime.Gosched()
	}
}

// A call that begins in a round waits for its end, and then has to make new memory.
func TestCallsWaitForRounds(t *testing.T) {
	j := newJob(t, 2, 1)
	e := j.ends[1]
	answer := e.holds(t, yes)
	go Ask(t.Context(), device(0), nil)
	e.until(func(l *Lender) bool { return l.frozen })
	entered := make(chan string)
	go func() {
		if err := e.Enter(); err != nil {
			t.Error(err)
		}
		entered <- e.state(false)
	}()
	e.until(func(l *Lender) bool { return l.changed != nil }) // it waits
	close(answer)
	j.expect("the call has begun", []string{<-entered}, "")
}

// A communicator that needs memory waits for a round in progress, also where the memory is taken from the peers already.
func TestAskingWaitsForRounds(t *testing.T) {
	for _, rank := range []int{0, 1} {
		j := newJob(t, 3, 1)
		answer := j.ends[2].holds(t, done)
		go Ask(t.Context(), device(0), nil)
		j.ends[rank].until(func(l *Lender) bool { return l.frozen && !l.offered })
		has := make(chan string, 1)
		go func() {
			Ask(t.Context(), device(rank), nil)
			has <- j.ends[rank].state(false)
		}()
		j.ends[rank].until(func(l *Lender) bool { return l.changed != nil || len(has) > 0 }) // it waits
		close(answer)
		j.expect("asked in a round", []string{<-has}, "")
	}
}

// A rank that dies in a round has the communicator fail: calls that wait for the round do as well.
func TestDeathInARound(t *testing.T) {
	j := newJob(t, 3, 1)
	e := j.ends[1]
	defer close(e.holds(t, yes))
	go Ask(t.Context(), device(0), nil)
	j.ends[2].until(func(l *Lender) bool { return l.frozen })
	failed := make(chan error)
	go func() { failed <- j.ends[2].Enter() }()
	j.ends[2].until(func(l *Lender) bool { return l.changed != nil })
	close(e.done)
	if err := <-failed; err != nil && !errors.Is(err, errDead) { // nil: it has found out that there is no round any more
		t.Errorf("%v, expected the end of the communicator", err)
	}
	for _, x := range j.ends {
		x.until(func(l *Lender) bool { return l.over && !l.frozen })
	}
	j.expect("after a death", j.asked(), "mapped")
}

// Messages of rounds that have ended with the memory of an earlier owner are no part of later ones.
func TestMessagesOfEarlierRoundsCountForNothing(t *testing.T) {
	j := newJob(t, 2, 1)
	j.each(func(e *end) { e.Stop() })
	for _, e := range j.ends {
		e.Lender = Lender{}
	}
	j.start(2)
	j.expect("idle", j.asked(), "")
}

// Ranks meet before they make memory anew. Where they come to two communicators in different orders they do without, on all
// ranks, sooner each time; and meet again when they come in one.
func TestRanksMeet(t *testing.T) {
	a, b := newJob(t, 2, 1), newJob(t, 2, 1)
	meet := func(e *end) bool {
		all, err := e.Meet(t.Context())
		if err != nil {
			t.Error(err)
		}
		return all
	}
	for n := range 3 {
		var got [2][2]bool
		var ranks sync.WaitGroup
		ranks.Go(func() { got[0] = [2]bool{meet(a.ends[0]), meet(b.ends[0])} })
		ranks.Go(func() { got[1][1] = meet(b.ends[1]); got[1][0] = meet(a.ends[1]) })
		ranks.Wait()
		if got[0] != got[1] || got[0] == [2]bool{true, true} {
			t.Errorf("%d: rank 0 has met %v, rank 1 %v: expected the same, and that one at least is missed", n, got[0], got[1])
		}
	}
	c := newJob(t, 3, 1)
	var mu sync.Mutex
	met := 0
	c.each(func(e *end) {
		for range 10 {
			if meet(e) {
				mu.Lock()
				met++
				mu.Unlock()
			}
		}
	})
	if met != 30 {
		t.Errorf("ranks have met %d times, expected 10 each", met)
	}
}

// A rank that has left keeps no other from going on: its call finds out.
func TestMeetingsEndWithARank(t *testing.T) {
	for who := range 2 {
		j := newJob(t, 2, 1)
		j.ends[1-who].Stop()
		for range 3 {
			if _, err := j.ends[who].Meet(t.Context()); err != nil {
				t.Errorf("rank %d: %v", who, err)
			}
		}
	}
}
