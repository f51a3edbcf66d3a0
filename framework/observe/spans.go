package observe

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// spans takes the times at which the calls of one communicator were on streams of a device: by stamps before and behind what a call
// enqueues, which are read once they are taken. In a graph each launch takes them anew, and a look finds the latest one.
//
// Stamps have the clock of the device. It is compared with that of the host by stamps on a stream of its own: the host reads its clock
// before and behind each, as for clocks of other hosts. The nil spans does nothing.
type spans struct {
	engine device.Engine
	timer  device.Timer
	clock  func() int64

	mu      sync.Mutex
	closed  bool
	free    []device.Stamp
	fresh   []span // that have ended since the last look
	under   int    // and those of which the times are not taken
	base    *base
	current span // the call in progress
	pace    pace
	capture capture
	streams []device.Stream
	left    []device.Stamp // of no use any more, but to graphs

	// Of the reader alone.
	open   []span
	graphs []span
	next   int // of the graphs, for the next look
	bases  []*base
	stream device.Stream
	pings  []device.Stamp
	fit    aligner
	device Clock // of the host, for whom the device is rank 0
	turn   int
	due    int64
}

// base is a stamp from which others are counted: the driver knows times between stamps alone, the longer the less exactly.
type base struct {
	stamp device.Stamp
	at    int64 // by the clock of the device, which begins as that of the host
}

// span is one call on a stream.
type span struct {
	call       uint64
	on         device.Stream
	stream     uint16 // its number
	graph      bool
	base       *base
	begin, end device.Stamp // nil: it is none
	seen       int64        // of a graph: when the launch before began, by the clock of the device
}

const (
	// Stamps take the stream a microsecond or two. So calls that follow each other faster are not all measured.
	spanEvery  = 100 * int64(time.Microsecond)
	mostSparse = 10

	mostSpans      = 256 // under way
	mostGraphSpans = 1024
	mostLooks      = 16 // at spans that have not ended, and at launches of graphs, each time: the driver is asked under a lock
	graphAgain     = 2000
	keptBases      = 8

	// InGraph is set in the block of a span of a graph.
	InGraph = 1 << 15

	// Stamps are exact to half a microsecond each.
	stampError = 1000
	// Clocks of devices drift by less, until it is known by how much.
	unknownDrift = 100e-6
)

// Spanned takes the record of a span apart: the number of its stream, and by how much its times may be off, in ns. Its record has the
// time of the begin, and in place of bytes how long it took. In a graph the call is the one that was captured.
func (x *Record) Spanned() (stream int, graph bool, off int64) {
	return int(x.Block &^ InGraph), x.Block&InGraph != 0, int64(x.Peer)
}

// newSpans returns nil for a device that takes no times.
func newSpans(on device.Device, clock func() int64, graphs int) *spans {
	engine, streams := on.(device.Engine)
	timer, times := on.(device.Timer)
	if !streams || !times {
		return nil
	}
	return &spans{engine: engine, timer: timer, clock: clock, capture: capture{every: graphs}}
}

// stamp takes one that is free, or makes one; nil: there is none.
func (s *spans) stamp() device.Stamp {
	if n := len(s.free); n > 0 {
		x := s.free[n-1]
		s.free = s.free[:n-1]
		return x
	}
	x, err := s.timer.NewStamp()
	if err != nil {
		return nil // spans are a help, and no reason for a call to fail
	}
	return x
}

func (s *spans) give(x ...device.Stamp) {
	for _, x := range x {
		if x != nil {
			s.free = append(s.free, x)
		}
	}
}

// begin marks where a call that begins now begins on a stream.
func (s *spans) begin(on device.Stream, call uint64, now int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := s.pace.wanted(call, now)
	if s.closed || s.base == nil || !wanted && !s.capture.on {
		return
	}
	graph, err := s.timer.Capturing(on)
	if of := s.capture.wanted(graph && err == nil); graph {
		wanted = of && s.capture.measured < mostGraphSpans
	} else {
		wanted = wanted && s.under < mostSpans
	}
	if err != nil || !wanted {
		return
	}
	x := span{call: call, on: on, stream: s.number(on), graph: graph, base: s.base, begin: s.stamp(), end: s.stamp()}
	if x.begin == nil || x.end == nil || record(x.begin, on, graph) != nil {
		s.give(x.begin, x.end)
		return
	}
	s.current = x
}

// pace chooses the calls that are measured.
type pace struct {
	last, measured int64 // when the call before began, and the one that was measured
	sparse         int   // one of 2^sparse calls that follow each other closely is measured
}

// wanted reports whether a call is measured: one that comes some time behind the one before it, and of others one in so many, by its number.
// So ranks measure the same ones.
func (p *pace) wanted(call uint64, now int64) bool {
	before := p.last
	p.last = now
	if now-before >= spanEvery {
		p.measured = now
		return true
	}
	if call&(1<<p.sparse-1) != 0 {
		return false
	}
	switch took := now - p.measured; {
	case took < spanEvery && p.sparse < mostSparse:
		p.sparse++
	case took > 4*spanEvery && p.sparse > 0:
		p.sparse--
	}
	p.measured = now
	return true
}

// capture chooses the calls of graphs that are measured: stamps are nodes of a graph, which take several us of each launch, and kernels around them
// do not overlap any more.
type capture struct {
	every    int // one call of a capture in so many, the last of each; 0: none
	on       bool
	calls    int // of this capture
	measured int
}

func (c *capture) wanted(captured bool) bool {
	if captured && !c.on {
		c.calls = 0
	}
	if c.on = captured; !captured || c.every <= 0 {
		return false
	}
	c.calls++
	return c.calls%c.every == 0
}

func record(x device.Stamp, on device.Stream, graph bool) error {
	if graph {
		return x.RecordEach(on)
	}
	return x.Record(on)
}

// number is that of a stream; there is one for all beyond many.
func (s *spans) number(on device.Stream) uint16 {
	n := slices.Index(s.streams, on)
	if n < 0 {
		n = len(s.streams)
		if n < 255 {
			s.streams = append(s.streams, on)
		}
	}
	return uint16(n)
}

// end marks where it ends.
func (s *spans) end() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.current
	s.current = span{}
	switch {
	case x.begin == nil:
	case record(x.end, x.on, x.graph) != nil:
		s.left = append(s.left, x.begin) // it may be in a graph
		s.give(x.end)
	default:
		if x.graph {
			s.capture.measured++
		} else {
			s.under++
		}
		s.fresh = append(s.fresh, x)
	}
}

// read writes records of the spans of which the times were taken.
func (s *spans) read(w *Writer) {
	if s == nil {
		return
	}
	if now := s.clock(); now >= s.due {
		s.look(w) // launches of graphs are read against the base before
		s.renew()
	}
	s.look(w)
}

func (s *spans) look(w *Writer) {
	s.mu.Lock()
	for _, x := range s.fresh {
		if x.graph {
			s.graphs = append(s.graphs, x)
		} else {
			s.open = append(s.open, x)
		}
	}
	s.fresh = s.fresh[:0]
	s.mu.Unlock()
	kept := s.open[:0]
	for i, x := range s.open {
		if len(kept) == mostLooks { // the device is behind, with the others as well
			kept = append(kept, s.open[i:]...)
			break
		}
		begin, end, done, err := x.times(x.base)
		switch {
		case err == nil && !done:
			kept = append(kept, x)
			continue
		case err == nil:
			s.write(w, &x, begin, end)
		}
		s.mu.Lock()
		s.give(x.begin, x.end)
		s.under--
		s.mu.Unlock()
	}
	clear(s.open[len(kept):])
	s.open = kept
	if len(s.bases) == 0 {
		return
	}
	from := s.bases[max(0, len(s.bases)-keptBases)] // a launch may be older than the last one
	for range min(len(s.graphs), mostLooks) {
		s.next = (s.next + 1) % len(s.graphs)
		x := &s.graphs[s.next]
		begin, end, done, err := x.times(from)
		// Launches that were read before, or overlap the look, are none.
		if err == nil && done && begin > x.seen+graphAgain && begin > from.at && end >= begin {
			x.seen = begin
			s.write(w, x, begin, end)
		}
	}
}

// times is when it began and ended, by the clock of the device.
func (x *span) times(from *base) (begin, end int64, done bool, err error) {
	if done, err = x.end.Query(); !done || err != nil {
		return 0, 0, false, err
	}
	if end, err = x.end.After(from.stamp); err != nil {
		return 0, 0, false, err
	}
	begin, err = x.begin.After(from.stamp)
	return from.at + begin, from.at + end, err == nil, err
}

func (s *spans) write(w *Writer, x *span, begin, end int64) {
	block := x.stream
	if x.graph {
		block |= InGraph
	}
	from, to := s.device.From(begin), s.device.From(end)
	w.write(from, Span|Total, x.call, uint64(to-from), block, int32(min(s.off(to), 1<<31-1)))
}

// off is by how much a time may be wrong. Behind the last comparison the error of the drift grows.
func (s *spans) off(at int64) int64 {
	first, last := s.fit.kept[0], s.fit.kept[len(s.fit.kept)-1]
	drift := unknownDrift
	if span := last.middle() - first.middle(); span >= leastSpan {
		drift = min(drift, 2*float64(s.device.Error)/float64(span))
	}
	return s.device.Error + stampError + int64(drift*float64(max(0, at-s.device.At)))
}

// The time between two comparisons of clocks: at first the drift is not known.
const (
	clockAtFirst = 50 * int64(time.Millisecond)
	clockLater   = 250 * int64(time.Millisecond)
	clockTurns   = 20 // at first

	// A stream that is held up says no time. And times from an old base are not exact.
	mostHeld = 20 * int64(time.Millisecond)
	baseAged = 4 * int64(time.Second)
)

// renew compares the clock of the device with that of the host.
func (s *spans) renew() {
	if s == nil || !s.prepare() {
		return
	}
	if s.base != nil && s.clock()-s.device.At > baseAged { // records were off
		s.restart()
	}
	s.due = s.clock() + clockLater
	if s.turn++; s.turn < clockTurns {
		s.due = s.clock() + clockAtFirst
	}
	var all []ping
	next := &base{stamp: s.pings[0]}
	for i, x := range s.pings {
		p, ok := s.ping(x)
		if !ok {
			return
		}
		from := s.base
		if i > 0 {
			from = next
		}
		if from == nil { // the first one of all
			p.answered = p.middle()
		} else if after, err := x.After(from.stamp); err == nil {
			p.answered = from.at + after
		} else {
			return
		}
		if i == 0 {
			next.at = p.answered
		}
		all = append(all, p)
	}
	s.fit.add(all)
	s.device = s.fit.fit()
	s.mu.Lock()
	s.base = next
	s.bases = append(s.bases, next)
	s.pings[0] = nil // it is the base's
	s.tidy()
	s.mu.Unlock()
}

// restart forgets what is known of the clock of the device, and the calls that were measured by it.
func (s *spans) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fit, s.turn, s.base = aligner{}, 0, nil
	s.left, s.current = append(s.left, s.current.begin, s.current.end), span{} // they may be in a graph
	for _, b := range s.bases {
		s.give(b.stamp)
	}
	s.bases = nil
	for _, x := range slices.Concat(s.fresh, s.open) {
		if x.graph {
			s.graphs = append(s.graphs, x)
			continue
		}
		s.give(x.begin, x.end)
		s.under--
	}
	s.fresh, s.open = s.fresh[:0], s.open[:0]
	for i := range s.graphs {
		s.graphs[i].seen = 0
	}
}

// prepare makes what a comparison needs.
func (s *spans) prepare() bool {
	if s.stream == 0 {
		var err error
		if s.stream, err = device.NewSideStream(s.engine); err != nil {
			s.due = s.clock() + clockLater
			return false
		}
		s.pings = make([]device.Stamp, burst)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pings {
		if s.pings[i] == nil {
			s.pings[i] = s.stamp()
		}
		if s.pings[i] == nil {
			return false
		}
	}
	return !s.closed
}

func (s *spans) ping(x device.Stamp) (p ping, ok bool) {
	p.sent = s.clock()
	if x.Record(s.stream) != nil {
		return p, false
	}
	for {
		done, err := x.Query()
		p.received = s.clock()
		if done || err != nil || p.rtt() > mostHeld {
			return p, done && err == nil
		}
		if p.rtt() > mostHeld/100 {
			runtime.Gosched()
		}
	}
}

// tidy frees the bases that no span counts from.
func (s *spans) tidy() {
	kept := s.bases[max(0, len(s.bases)-keptBases):]
	s.bases = slices.DeleteFunc(slices.Clone(s.bases), func(b *base) bool {
		counts := func(x span) bool { return x.base == b }
		if slices.Contains(kept, b) || counts(s.current) || slices.ContainsFunc(s.fresh, counts) || slices.ContainsFunc(s.open, counts) {
			return false
		}
		s.give(b.stamp)
		return true
	})
}

// close frees everything. Graphs with calls of the communicator are not launched any more.
func (s *spans) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	all := slices.Concat(s.free, s.pings, s.left)
	for _, x := range slices.Concat([]span{s.current}, s.fresh, s.open, s.graphs) {
		all = append(all, x.begin, x.end)
	}
	for _, b := range s.bases {
		all = append(all, b.stamp)
	}
	for _, x := range all {
		if x != nil {
			_ = x.Close() // a lost device has none
		}
	}
	if s.stream != 0 {
		_ = s.engine.CloseStream(s.stream)
	}
	s.free, s.pings, s.left, s.fresh, s.open, s.graphs, s.bases, s.current, s.base = nil, nil, nil, nil, nil, nil, nil, span{}, nil
}
