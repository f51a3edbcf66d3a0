package verify

import "github.com/mscclpp-go/mscclpp/plan/schema"

// end names one end of a channel: signals of a rank to a peer raise the counter of the peer's end.
type end struct {
	rank, peer int
	kind       schema.ChannelType
	ordinal    int // among the channels of that kind between the two
}

// counter counts signals of a channel, or releases of a semaphore. It never goes back.
type counter struct {
	initial int
	issued  int
	taken   int
	events  []int // of a trace: one for each that was issued
	before  int   // taken in launches that have ended

	sources []*signaler
	byID    map[int]*signaler
	waits   map[int]int // of each block, in its launch
	current map[int]int // the launch of these
}

// signaler is a thread that raises a counter.
type signaler struct {
	each   int // signals in a launch
	issued []issue
}

type issue struct {
	times  times
	strong bool
	last   int // the newest strong one up to here, -1 for none
}

func newCounter(initial int) *counter {
	return &counter{initial: initial, byID: map[int]*signaler{}, waits: map[int]int{}, current: map[int]int{}}
}

// expect says, before a run, that a thread will raise the counter once more in each launch.
func (c *counter) expect(thread int) {
	s := c.byID[thread]
	if s == nil {
		s = &signaler{}
		c.byID[thread] = s
		c.sources = append(c.sources, s)
	}
	s.each++
}

func (c *counter) raise(t *thread, x times, strong bool) {
	c.issued++
	c.events = append(c.events, t.event)
	s := c.byID[t.id]
	last := -1
	if n := len(s.issued); strong {
		last = n
	} else if n > 0 {
		last = s.issued[n-1].last
	}
	s.issued = append(s.issued, issue{x, strong, last})
}

// ready reports whether n more may be taken.
func (c *counter) ready(n int) bool { return c.initial+c.issued >= c.taken+n }

// take takes one for a block, and calls learn with what that is sure to follow. Which one of several blocks takes
// which number is open; so is the order in which several threads signal.
func (c *counter) take(t *thread, trace *tracer, learn func(times, bool)) {
	if n := c.taken - c.initial; n >= 0 {
		trace.follow(t, c.events[n])
	}
	c.taken++
	if c.current[t.id] != t.launch {
		c.current[t.id], c.waits[t.id] = t.launch, 0
	}
	c.waits[t.id]++
	least := c.before + c.waits[t.id] - c.initial
	for _, s := range c.sources {
		// The signals of a thread follow each other, but what a relaxed one of them says is less.
		if n := min(c.sure(s, least), len(s.issued)); n > 0 {
			newest := &s.issued[n-1]
			learn(newest.times, newest.strong)
			if !newest.strong && newest.last >= 0 {
				learn(s.issued[newest.last].times, true)
			}
		}
	}
}

// sure returns how many signals of s are among the first least ones in every order: the others of the rank may be
// ahead, but not by a launch.
func (c *counter) sure(s *signaler, least int) int {
	if least <= 0 || s.each == 0 {
		return 0
	}
	others := -s.each
	for _, x := range c.sources {
		others += x.each
	}
	for launch := 1; ; launch++ {
		n := max((launch-1)*s.each, least-others*launch)
		if n < launch*s.each || others == 0 {
			return n
		}
	}
}

// ended is called when a rank ends a launch: the counter's takers have taken all of it.
func (c *counter) ended() { c.before = c.taken }
