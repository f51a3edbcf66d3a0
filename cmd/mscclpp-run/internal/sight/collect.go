package sight

import (
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Collector reads records of the ranks in some memories, before they are overwritten.
type Collector struct {
	memories []*observe.Memory

	mu   sync.Mutex
	logs map[place]*log
	room int // for further records
	stop chan struct{}
	done sync.WaitGroup
}

// place is a region, and which of the ranks that took it one after the other.
type place struct {
	memory, region int
	started        int64
}

// log holds the records and states read from one rank.
type log struct {
	info   observe.Info
	states []observe.State
	names  [observe.Names]string
	cursor observe.Cursor
	events []*events
	lost   uint64
}

// events are those of one writer.
type events struct {
	ring    int
	writer  string
	records []observe.Record
}

// mostRecords bounds the memory of a collector to some 100 MB, and the file.
const mostRecords = 1_000_000

// pollEvery is how often a collector reads: a ring has room for what a rank writes meanwhile, unless its calls take less
// than 3 µs.
const pollEvery = 5 * time.Millisecond

// NewCollector reads records from now on.
func NewCollector(memories ...*observe.Memory) *Collector {
	return &Collector{memories: memories, logs: map[place]*log{}, room: mostRecords, stop: make(chan struct{})}
}

// Start reads in the background, until Stop.
func (c *Collector) Start() {
	c.done.Go(func() {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.Poll()
			case <-c.stop:
				return
			}
		}
	})
}

// Stop ends that. It is called once.
func (c *Collector) Stop() {
	close(c.stop)
	c.done.Wait()
}

// Poll reads what is there now.
func (c *Collector) Poll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, memory := range c.memories {
		for _, v := range memory.Views() {
			c.read(m, v)
		}
	}
}

func (c *Collector) read(memory int, v *observe.View) {
	info := v.Info()
	at := place{memory, v.Region, info.Started}
	l := c.logs[at]
	if l == nil {
		l = &log{}
		c.logs[at] = l
	}
	l.info, l.states = info, v.States()
	for i := range l.names {
		if l.names[i] == "" {
			l.names[i] = v.Name(i)
		}
	}
	for _, s := range v.Read(&l.cursor) {
		n := slices.IndexFunc(l.events, func(e *events) bool { return e.ring == s.Ring && e.writer == s.Writer })
		if n < 0 {
			n = len(l.events)
			l.events = append(l.events, &events{ring: s.Ring, writer: s.Writer})
		}
		e := l.events[n]
		if len(s.Records) > c.room {
			l.lost += uint64(len(s.Records) - c.room)
			s.Records = s.Records[:c.room]
		}
		c.room -= len(s.Records)
		e.records = append(e.records, s.Records...)
		l.lost += s.Lost
	}
}

// Trace puts together what was read of a job; "" is any.
func (c *Collector) Trace(job string) *Trace {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &Trace{Job: job}
	var all []observe.Info
	for _, l := range c.logs {
		all = append(all, l.info)
	}
	for _, l := range c.logs {
		if job != "" && l.info.Job != job {
			continue
		}
		t.Job = l.info.Job
		t.Ranks = append(t.Ranks, l.rank(all))
	}
	t.finish()
	return t
}

func (l *log) rank(all []observe.Info) *Rank {
	clock := clockOf(&l.info, all)
	r := &Rank{
		Rank: l.info.Rank, Size: l.info.Size, Host: l.info.Host, Device: l.info.Device, PID: l.info.PID,
		State: observe.StateName(l.info.State), Failure: l.info.Failure, Culprit: l.info.Culprit, ClockError: clock.Error, Lost: l.lost,
	}
	b := builder{log: l, clock: clock, rank: r, open: map[int]*Call{}}
	for _, e := range l.events {
		for i := range e.records {
			b.add(e.writer, &e.records[i])
		}
	}
	b.end()
	return r
}

// builder makes calls of records.
type builder struct {
	log   *log
	clock observe.Clock
	rank  *Rank
	open  map[int]*Call // by communicator
	begun map[string]int64
}

func (b *builder) name(n uint16) string {
	if int(n) < len(b.log.names) {
		return b.log.names[n]
	}
	return ""
}

func (b *builder) comm(board int) string {
	for i := range b.log.states {
		if b.log.states[i].Board == board {
			return b.log.states[i].Name
		}
	}
	return "closed"
}

func (b *builder) add(writer string, x *observe.Record) {
	at := b.clock.To(x.Time)
	board, number := observe.CallOf(x.Call)
	switch x.Event {
	case observe.Call | observe.Begin:
		b.close(board)
		b.open[board] = &Call{
			Comm: b.comm(board), Number: number, Kind: collective.Kind(x.Block).String(), Bytes: x.Bytes, Begin: at, Chosen: at,
		}
	case observe.Chosen | observe.Instant:
		if c := b.open[board]; c != nil && c.Number == number {
			c.Chosen, c.Algorithm = at, b.name(x.Block)
		}
	case observe.Call | observe.End:
		if c := b.open[board]; c != nil && c.Number == number {
			c.End = at
			b.close(board)
		}
	case observe.Trigger | observe.Begin:
		if b.begun == nil {
			b.begun = map[string]int64{}
		}
		b.begun[writer] = at
	case observe.Trigger | observe.End:
		if from, ok := b.begun[writer]; ok {
			b.rank.Triggers = append(b.rank.Triggers, Trigger{Writer: writer, Begin: from, End: at, Bytes: x.Bytes})
			delete(b.begun, writer)
		}
	default:
		m := Moment{Name: x.Event.String(), At: at, Peer: int(x.Peer)}
		switch x.Event {
		case observe.Mark | observe.Instant:
			m.Name = b.name(x.Block)
		case observe.Join | observe.End:
			m.Name = "joined"
		}
		b.rank.Moments = append(b.rank.Moments, m)
	}
}

func (b *builder) close(board int) {
	if c := b.open[board]; c != nil {
		b.rank.Calls = append(b.rank.Calls, *c)
		delete(b.open, board)
	}
}

// end adds the calls that have not ended, and the last ones of which there are no records.
func (b *builder) end() {
	for board := range b.open {
		b.close(board)
	}
	for i := range b.log.states {
		s := &b.log.states[i]
		if s.Begun == 0 || slices.ContainsFunc(b.rank.Calls, func(c Call) bool { return c.Comm == s.Name && c.Number == s.Begun }) {
			continue
		}
		since := s.Since
		if since == 0 {
			since = b.log.info.Ticked
		}
		at := b.clock.To(max(1, since))
		c := Call{
			Comm: s.Name, Number: s.Begun, Kind: s.Kind.String(), Algorithm: s.Algorithm, Bytes: s.Bytes, Begin: at, Chosen: at, End: at, Guess: true,
		}
		if s.Busy() {
			c.End = 0
		}
		b.rank.Calls = append(b.rank.Calls, c)
	}
}
