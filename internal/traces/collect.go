package traces

import (
	"cmp"
	"fmt"
	"maps"
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
	last map[place]*log // of each region, whose place has no start
	most int            // records that are kept
	held int            // that are, up to a quarter more
	sums bool
	sum  map[string]*Story // of each job, of the records that were dropped
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
	info     observe.Info
	states   []observe.State
	names    [observe.Names]string
	standing uint64
	cursor   observe.Cursor
	events   []*events
	lost     uint64
	dropped  uint64 // to make room for newer ones
}

// events are those of one writer.
type events struct {
	ring    int
	writer  string
	records []observe.Record
}

// MostRecords bounds the memory of a collector, and the file.
const MostRecords = 400_000

// pollEvery is how often a collector reads: a ring has room for what a rank writes meanwhile, unless its calls take less
// than 1.2 µs.
const (
	pollEvery = 5 * time.Millisecond
	allEvery  = 20 // polls: as often as ranks say when their calls began
)

// NewCollector reads records from now on.
func NewCollector(memories ...*observe.Memory) *Collector {
	return &Collector{memories: memories, logs: map[place]*log{}, last: map[place]*log{}, sum: map[string]*Story{}, most: MostRecords, stop: make(chan struct{})}
}

// Newest reads the records of a job ("": of any) that memories still hold. Older ones are counted as dropped.
func Newest(job string, memories ...*observe.Memory) *Trace {
	c := NewCollector(memories...)
	c.Poll()
	for _, l := range c.logs {
		l.dropped, l.lost = l.dropped+l.lost, 0
	}
	return c.Trace(job)
}

// Start reads in the background, until Stop.
func (c *Collector) Start() {
	c.done.Go(func() {
		tick := time.NewTicker(pollEvery)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
				c.poll(n%allEvery == 0)
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
func (c *Collector) Poll() { c.poll(true) }

// poll reads the records, and all else that has changed, or everything: records cost the ranks least of a processor that they need.
func (c *Collector) poll(everything bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, memory := range c.memories {
		for _, v := range memory.Views() {
			c.read(m, v, everything)
		}
	}
	if c.sums && c.held > manyRecords {
		for _, job := range c.jobs() {
			c.sum[job] = c.tell(job)
		}
		c.forget()
	}
}

// Bound lets the collector keep fewer records: the newest ones.
func (c *Collector) Bound(records int) { c.most = min(c.most, records) }

// manyRecords is how many are kept where numbers are enough.
const manyRecords = 100_000

// Summarize has the collector drop records, once there are many, and keep what a story says of them.
func (c *Collector) Summarize() { c.sums = true }

// Jobs are those of which something was read, in the order in which they began: the ranks of one launcher may be in several jobs, at a time or
// one after the other.
func (c *Collector) Jobs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs()
}

func (c *Collector) jobs() []string {
	began := map[string]int64{}
	for at, l := range c.logs {
		job := c.jobOf(at, l)
		if first, known := began[job]; !known || at.started < first {
			began[job] = at.started
		}
	}
	return slices.SortedFunc(maps.Keys(began), func(a, b string) int { return cmp.Or(cmp.Compare(began[a], began[b]), cmp.Compare(a, b)) })
}

// jobOf is the name of the job of a rank. The second one of a name that the process makes has a number.
func (c *Collector) jobOf(at place, l *log) string {
	before := 0
	for x, other := range c.logs {
		if x.memory == at.memory && x.region == at.region && x.started < at.started && other.info.Job == l.info.Job {
			before++
		}
	}
	if before == 0 {
		return l.info.Job
	}
	return fmt.Sprintf("%s.%d", l.info.Job, before+1)
}

// Tell is the story of all that was read of a job.
func (c *Collector) Tell(job string) *Story {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.tell(job)
	if c.sums { // they count once
		c.sum[job] = s
		for at, l := range c.logs {
			if c.jobOf(at, l) == job {
				c.drop(l)
			}
		}
	}
	return s
}

func (c *Collector) tell(job string) *Story {
	s := c.trace(job).Tell()
	if before := c.sum[job]; before != nil {
		before.merge(s)
		return before
	}
	return s
}

func (c *Collector) read(memory int, v *observe.View, everything bool) {
	region := place{memory: memory, region: v.Region}
	standing := v.Standing()
	if l := c.last[region]; l != nil && l.standing == standing && !everything {
		l.learn(v)
		c.keep(l, v.Read(&l.cursor))
		return
	}
	info := v.Info()
	at := place{memory, v.Region, info.Started}
	l := c.logs[at]
	if l == nil {
		if before := c.last[region]; before != nil {
			c.keep(before, v.Rest(&before.cursor))
		}
		l = &log{}
		c.logs[at], c.last[region] = l, l
	}
	l.info, l.states, l.standing = info, v.States(), standing
	l.learn(v)
	c.keep(l, v.Read(&l.cursor))
}

// learn reads the names that are new.
func (l *log) learn(v *observe.View) {
	for i := range l.names {
		if l.names[i] == "" {
			l.names[i] = v.Name(i)
		}
	}
}

// keep adds what was read of a rank.
func (c *Collector) keep(l *log, read []observe.Stretch) {
	for _, s := range read {
		n := slices.IndexFunc(l.events, func(e *events) bool { return e.ring == s.Ring && e.writer == s.Writer })
		if n < 0 {
			n = len(l.events)
			l.events = append(l.events, &events{ring: s.Ring, writer: s.Writer})
		}
		e := l.events[n]
		e.records = append(e.records, s.Records...)
		c.held += len(s.Records)
		l.lost += s.Lost
	}
	if c.held > c.most+c.most/4 { // else each record would cost a look at all
		c.trim()
	}
}

// trim drops the oldest records of the writers that have most of them, until there are few enough: what seldom happens stays.
func (c *Collector) trim() {
	var sizes []int
	for _, l := range c.logs {
		for _, e := range l.events {
			sizes = append(sizes, len(e.records))
		}
	}
	slices.Sort(sizes)
	each, left := 0, max(0, c.most) // each: how many a writer may have
	for i, n := range sizes {
		if each = left / (len(sizes) - i); n > each {
			break
		}
		left -= n
	}
	c.held = 0
	for _, l := range c.logs {
		for _, e := range l.events {
			if over := len(e.records) - each; over > 0 {
				e.records = slices.Delete(e.records, 0, over)
				l.dropped += uint64(over)
			}
			c.held += len(e.records)
		}
	}
}

// Forget drops the records that were read so far.
func (c *Collector) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
}

func (c *Collector) forget() {
	for _, l := range c.logs {
		c.drop(l)
	}
}

func (c *Collector) drop(l *log) {
	for _, e := range l.events {
		c.held -= len(e.records)
	}
	l.events, l.lost, l.dropped = nil, 0, 0
}

// Trace puts together what was read of a job; "" is any.
func (c *Collector) Trace(job string) *Trace {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trace(job)
}

func (c *Collector) trace(job string) *Trace {
	if c.held > c.most {
		c.trim()
	}
	t := &Trace{Job: job}
	var all []observe.Info
	var mine []*log
	for at, l := range c.logs {
		if job == "" || c.jobOf(at, l) == job {
			all = append(all, l.info)
			mine = append(mine, l)
		}
	}
	world := worlds(mine)
	for _, l := range mine {
		t.Job = l.info.Job
		t.Ranks = append(t.Ranks, l.rank(all, world))
	}
	t.Finish()
	return t
}

func (l *log) rank(all []observe.Info, world worldOf) *Rank {
	clock := clockOf(&l.info, all)
	r := &Rank{
		Rank: l.info.Rank, Size: l.info.Size, Host: l.info.Host, Device: l.info.Device, PID: l.info.PID,
		State: observe.StateName(l.info.State), Failure: l.info.Failure, Culprit: l.info.Culprit, ClockError: clock.Error, Lost: l.lost, Dropped: l.dropped,
	}
	b := builder{log: l, clock: clock, rank: r, world: world, open: map[int]*Call{}, begun: map[string]int64{}, waits: map[uint64]int64{}, posts: map[peerOf][]post{}, kernels: kernelReader{r, clock, world.rank, map[string]*kernelOf{}}}
	var parts []observe.Record
	for _, e := range l.events {
		for i := range e.records {
			parts = e.records[i].Parts(parts[:0])
			for n := range parts {
				b.add(e.writer, &parts[n])
			}
		}
	}
	b.end()
	return r
}

// Standing is a rank without records: where it is in each communicator, also in those of which it has begun no call.
func Standing(info observe.Info, states []observe.State) *Rank {
	l := log{info: info, states: states}
	r := l.rank(nil, nil)
	for _, x := range states {
		if x.Begun == 0 { // it is behind others that have begun a call
			r.Calls = append(r.Calls, Call{Comm: x.Name, End: 1, Guess: true})
		}
	}
	return r
}

// builder makes calls of records.
type builder struct {
	log     *log
	clock   observe.Clock
	rank    *Rank
	world   worldOf
	open    map[int]*Call // by communicator
	begun   map[string]int64
	waits   map[uint64]int64  // that have begun, by signal
	posts   map[peerOf][]post // that are not complete
	kernels kernelReader
}

// peerOf is what a proxy has under way to one peer.
type peerOf struct {
	writer string
	peer   int
}

// post is one request of that.
type post struct {
	number, bytes uint64
	at            int64
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
	if b.kernels.add(writer, x) {
		return
	}
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
		b.begun[writer] = at
	case observe.Trigger | observe.End:
		if from, ok := b.begun[writer]; ok {
			b.rank.Triggers = append(b.rank.Triggers, Trigger{Writer: writer, Begin: from, End: at, Bytes: x.Bytes, Peer: int(x.Peer), Queued: int(x.Block)})
			delete(b.begun, writer)
		}
	case observe.Posted | observe.Instant:
		b.posted(peerOf{writer, int(x.Peer)}, post{x.Call, x.Bytes, at})
	case observe.Completed | observe.Instant:
		b.completed(peerOf{writer, int(x.Peer)}, x.Call, at)
	case observe.Put | observe.Instant, observe.Signal | observe.Instant:
		c, n := b.channel(x)
		b.rank.Puts = append(b.rank.Puts, Put{Channel: c, At: at, Bytes: x.Bytes, Number: n, Signal: x.Event.Kind() == observe.Signal})
	case observe.Wait | observe.Begin:
		b.waits[x.Call] = at
	case observe.Wait | observe.End:
		if from, ok := b.waits[x.Call]; ok {
			c, n := b.channel(x)
			b.rank.Waits = append(b.rank.Waits, Wait{Channel: c, Begin: from, End: at, Number: n})
			delete(b.waits, x.Call)
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

// channel is that of a record of the host, and the number of its signal.
func (b *builder) channel(x *observe.Record) (Channel, uint32) {
	name, semaphore, n := observe.FlowOf(x.Call)
	comm := b.name(uint16(name))
	return Channel{Comm: comm, Transport: b.name(x.Block), Peer: b.world.rank(comm, int(x.Peer)), Semaphore: semaphore}, n
}

// mostPosts bounds what is kept of requests of which no completion is heard: those without a flush.
const mostPosts = 1 << 16

func (b *builder) posted(u peerOf, p post) {
	if len(b.posts[u]) < mostPosts {
		b.posts[u] = append(b.posts[u], p)
	}
}

// completed ends the transfer of all requests up to a number.
func (b *builder) completed(u peerOf, number uint64, at int64) {
	x := Transfer{Writer: u.writer, Peer: u.peer, End: at}
	list := b.posts[u]
	for len(list) > 0 && list[0].number <= number {
		if x.Requests == 0 {
			x.Begin = list[0].at
		}
		x.Requests++
		x.Bytes += list[0].bytes
		list = list[1:]
	}
	b.posts[u] = list
	if n := len(b.rank.Transfers); n > 0 && x.Requests > 0 { // slices of one track do not overlap
		for i := n - 1; i >= 0; i-- {
			if y := &b.rank.Transfers[i]; y.Writer == u.writer && y.Peer == u.peer {
				x.Begin = max(x.Begin, y.End)
				break
			}
		}
	}
	if x.Requests > 0 {
		b.rank.Transfers = append(b.rank.Transfers, x)
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
		if s.At != 0 { // records are on
			c.Begin, c.Guess = b.clock.To(s.At), false
			c.Chosen = c.Begin
		}
		b.rank.Calls = append(b.rank.Calls, c)
	}
}

// worldOf turns the ranks of a communicator into those of the job.
type worldOf map[string]map[int]int

// worlds knows them from the states of all ranks.
func worlds(logs []*log) worldOf {
	all := worldOf{}
	for _, l := range logs {
		for _, s := range l.states {
			if all[s.Name] == nil {
				all[s.Name] = map[int]int{}
			}
			all[s.Name][s.Rank] = l.info.Rank
		}
	}
	return all
}

func (w worldOf) rank(comm string, rank int) int {
	if r, known := w[comm][rank]; known {
		return r
	}
	return rank
}
