package metrics

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// meter makes numbers of the states and records of the ranks in a memory.
type meter struct {
	numbers *numbers

	mu       sync.Mutex
	memory   *observe.Memory // nil: there are no ranks
	ranks    map[place]*rank
	newest   map[int]*rank // by region
	meetings map[meeting][]visit
	parts    []observe.Record // of one
}

// place is a region, and which of the ranks that took it one after the other.
type place struct {
	region  int
	started int64
}

// rank is how far one rank has been read.
type rank struct {
	label  string
	info   observe.Info
	states []observe.State
	names  [observe.Names]string
	cursor observe.Cursor
	counts map[int]counts // by board
	calls  map[int]call   // that have begun, by board
	taken  map[int]int64  // when the trigger of a proxy was, by ring
	failed bool
}

type counts struct{ turn, calls, bytes uint64 }

type call struct {
	number        uint64
	begin, chosen int64
	kind          collective.Kind
	algorithm     string
	bytes         uint64
}

// meeting is one call, of all ranks; a visit is that of one of them.
type meeting struct {
	comm   string
	number uint64
}

type visit struct {
	rank               string
	begin, chosen, end int64
}

// mostMeetings bounds the calls that wait for the records of other ranks.
const mostMeetings = 4096

func newMeter(r prometheus.Registerer) *meter { return &meter{numbers: newNumbers(r)} }

// follow reads another memory from now on. Gauges are of the ranks that have written last.
func (m *meter) follow(memory *observe.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.memory = memory; memory != nil {
		m.ranks, m.newest, m.meetings = map[place]*rank{}, map[int]*rank{}, map[meeting][]visit{}
		m.numbers.job.Reset()
		m.numbers.state.Reset()
		m.numbers.age.Reset()
	}
}

// poll reads what was written since the last time.
func (m *meter) poll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.memory == nil {
		return
	}
	views := m.memory.Views()
	here := map[string]int{} // ranks of each communicator
	all := make([]*rank, len(views))
	for i, v := range views {
		all[i] = m.state(v)
		for _, s := range all[i].states {
			if s.Open {
				here[s.Name]++
			}
		}
	}
	for i, v := range views {
		m.read(v, all[i], v.Read(&all[i].cursor), here)
	}
	if len(m.meetings) > mostMeetings {
		clear(m.meetings) // records of some ranks were lost
	}
}

// state reads what is known of a rank without records.
func (m *meter) state(v *observe.View) *rank {
	info := v.Info()
	at := place{v.Region, info.Started}
	r := m.ranks[at]
	if r == nil {
		r = &rank{label: strconv.Itoa(info.Rank), counts: map[int]counts{}, calls: map[int]call{}, taken: map[int]int64{}}
		if before := m.newest[v.Region]; before != nil {
			m.read(v, before, v.Rest(&before.cursor), map[string]int{})
		}
		m.ranks[at], m.newest[v.Region] = r, r
		m.numbers.job.WithLabelValues(info.Job, strconv.Itoa(info.Size), info.Host).Set(1)
	}
	if r.info.State != info.State {
		m.numbers.state.DeletePartialMatch(prometheus.Labels{"rank": r.label})
		m.numbers.state.WithLabelValues(r.label, observe.StateName(info.State)).Set(1)
	}
	r.info, r.states = info, v.States()
	if info.State == observe.StateFailed && !r.failed {
		r.failed = true
		m.numbers.failures.WithLabelValues(r.label, strconv.Itoa(info.Culprit)).Inc()
	}
	age := int64(0)
	for _, s := range r.states {
		before := r.counts[s.Board]
		if s.Turn != before.turn { // another communicator has taken the place
			before = counts{turn: s.Turn}
		}
		now := counts{s.Turn, max(s.Ended, before.calls), max(s.Total, before.bytes)}
		m.numbers.rankCalls.WithLabelValues(r.label).Add(float64(now.calls - before.calls))
		m.numbers.rankBytes.WithLabelValues(r.label).Add(float64(now.bytes - before.bytes))
		r.counts[s.Board] = now
		if s.Open && s.Busy() && s.Since > 0 && info.State == observe.StateRunning {
			age = max(age, info.Ticked-s.Since)
		}
	}
	m.numbers.age.WithLabelValues(r.label).Set(float64(age) / 1e9)
	return r
}

// read takes the new records of a rank.
func (m *meter) read(v *observe.View, r *rank, read []observe.Stretch, here map[string]int) {
	for _, s := range read {
		m.numbers.lost.WithLabelValues(r.label).Add(float64(s.Lost))
		for i := range s.Records {
			m.parts = s.Records[i].Parts(m.parts[:0])
			for n := range m.parts {
				m.take(v, r, s.Ring, &m.parts[n], here)
			}
		}
	}
}

func (m *meter) take(v *observe.View, r *rank, ring int, x *observe.Record, here map[string]int) {
	board, number := observe.CallOf(x.Call)
	switch x.Event {
	case observe.Call | observe.Begin:
		r.calls[board] = call{number: number, begin: x.Time, chosen: x.Time, kind: collective.Kind(x.Block), bytes: x.Bytes}
	case observe.Chosen | observe.Instant:
		if c, begun := r.calls[board]; begun && c.number == number {
			c.chosen, c.algorithm = x.Time, r.name(v, int(x.Block))
			r.calls[board] = c
		}
	case observe.Call | observe.End:
		if c, begun := r.calls[board]; begun && c.number == number {
			delete(r.calls, board)
			m.ended(r, board, &c, x.Time, here)
		}
	case observe.Trigger | observe.Begin:
		r.taken[ring] = x.Time
		m.numbers.queue.WithLabelValues(r.label).Observe(float64(x.Block))
	case observe.Trigger | observe.End:
		if from, known := r.taken[ring]; known {
			delete(r.taken, ring)
			m.numbers.triggers.WithLabelValues(r.label).Observe(seconds(x.Time - from))
			m.numbers.moved.WithLabelValues(r.label).Add(float64(x.Bytes))
		}
	}
}

// name is a text of the rank. They do not change, and reading one takes memory.
func (r *rank) name(v *observe.View, n int) string {
	if n >= len(r.names) {
		return ""
	}
	if r.names[n] == "" {
		r.names[n] = v.Name(n)
	}
	return r.names[n]
}

// ended counts a call, and how long its ranks waited once the last of them has ended it.
func (m *meter) ended(r *rank, board int, c *call, end int64, here map[string]int) {
	labels := []string{c.kind.String(), classOf(c.bytes), c.algorithm}
	m.numbers.took.WithLabelValues(labels...).Observe(seconds(end - c.begin))
	m.numbers.bytes.WithLabelValues(labels...).Add(float64(c.bytes))
	for _, s := range r.states {
		if s.Board != board || here[s.Name] < 2 {
			continue
		}
		at := meeting{s.Name, c.number}
		m.meetings[at] = append(m.meetings[at], visit{r.label, c.begin, c.chosen, end})
		if visits := m.meetings[at]; len(visits) >= here[s.Name] {
			delete(m.meetings, at)
			m.met(visits)
		}
	}
}

func (m *meter) met(visits []visit) {
	last := visits[0]
	for _, v := range visits {
		if v.begin > last.begin {
			last = v
		}
	}
	for _, v := range visits {
		if wait := min(last.chosen, v.end) - v.chosen; v.rank != last.rank && wait > 0 {
			m.numbers.waited.WithLabelValues(v.rank, last.rank).Add(seconds(wait))
		}
	}
}

func seconds(ns int64) float64 { return float64(max(ns, 0)) / 1e9 }
