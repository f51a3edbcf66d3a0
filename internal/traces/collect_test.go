package traces

import (
	"sync/atomic"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// rankIn opens a rank in memory that a launcher has made. Its calls take some ns, so each is one record.
func rankIn(t *testing.T, m *observe.Memory, job string) *observe.Rank {
	t.Helper()
	var now atomic.Int64
	now.Store(observe.Now())
	r, err := observe.Open(observe.Facts{Job: job, Size: 1, Clock: func() int64 { return now.Add(10) }, Getenv: func(name string) string { return map[string]string{observe.Env: m.Variable()}[name] }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func memoryOf(t *testing.T, ranks int) *observe.Memory {
	t.Helper()
	m, err := observe.New(ranks, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func calls(b *observe.Board, n int) {
	for range n {
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
		b.End()
	}
}

// Of more records than a collector keeps the newest ones stay, and those that are seldom; the others are counted.
func TestCollectorsKeepTheNewest(t *testing.T) {
	m := memoryOf(t, 1)
	r := rankIn(t, m, "j")
	r.Life(observe.Join|observe.End, -1)
	b := r.Board("world", 0, 1)
	c := NewCollector(m)
	const most, each, turns = 101, 50, 20
	c.Bound(most)
	for range turns {
		calls(b, each)
		c.Poll()
		if c.held > most+most/4 {
			t.Fatalf("%d records are held, expected at most a quarter more than %d", c.held, most)
		}
	}
	x := c.Trace("").Ranks[0]
	if n := len(x.Calls); n != most-1 || x.Calls[0].Number != each*turns-99 || x.Calls[n-1].Number != each*turns {
		t.Fatalf("%d calls, the first and last are %+v and %+v: expected the last 100 of %d", n, x.Calls[0], x.Calls[n-1], each*turns)
	}
	if len(x.Moments) != 1 || x.Moments[0].Name != "joined" {
		t.Errorf("%+v: expected that the rank has joined", x.Moments)
	}
	if x.Lost != 0 || x.Dropped != each*turns-(most-1) {
		t.Errorf("%d lost and %d dropped: expected 0 and %d", x.Lost, x.Dropped, each*turns-(most-1))
	}
}

// The records of a rank are its own: not those of another one that had its region before, whose last records are not lost.
func TestRanksThatHaveARegionOneAfterTheOther(t *testing.T) {
	m := memoryOf(t, 1)
	c := NewCollector(m)
	first := rankIn(t, m, "first")
	b := first.Board("world", 0, 1)
	calls(b, 3)
	c.Poll()
	calls(b, 2) // which were not read yet
	b.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := rankIn(t, m, "second")
	calls(second.Board("world", 0, 1), 1)
	c.Poll()
	for job, want := range map[string]int{"first": 5, "second": 1} {
		n := 0
		for _, x := range c.Trace(job).Ranks[0].Calls {
			if !x.Guess {
				n++
			}
		}
		if n != want {
			t.Errorf("job %s: %d calls, expected %d", job, n, want)
		}
	}
	late := NewCollector(m)
	late.Poll()
	if n := len(late.Trace("").Ranks[0].Calls); n != 1 {
		t.Errorf("a collector that comes later sees %d calls of the second rank, expected 1", n)
	}
}
