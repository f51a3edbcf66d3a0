package comm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// ChannelState is the state of one channel. A rank that waits expects more signals than
// it has seen.
type ChannelState struct {
	Kind      framework.Kind
	Peer      int    // framework.NoPeer for a switch
	Transport string // that carries it
	ID        uint32 // of the semaphore, as kernels report it

	// Signals. Unknown where they are in the memory of a device that does not
	// answer, or has no copy engine.
	Known          bool
	Seen, Expected uint64

	// Triggers that wait for the proxy; they are those of all channels of its ring.
	Queued uint64
}

// Channels returns the state of all channels, in the order in which they were made. It
// may be called at any time. It waits only for counters from a device, and at most a
// quarter of a second.
func (c *Communicator) Channels() []ChannelState {
	l, done := c.looker()
	defer done()
	c.parts.mu.Lock()
	defer c.parts.mu.Unlock()
	if c.parts.closed {
		return nil
	}
	var all []ChannelState
	for _, p := range c.parts.list() {
		if counted, ok := p.(interface{ states(*looker) []ChannelState }); ok {
			all = append(all, counted.states(l)...)
		}
	}
	return all
}

// looker reads counters for one dump. A device that does not answer is not asked
// again.
type looker struct {
	control *control
	ctx     context.Context
	silent  bool
}

const dumpTimeout = 250 * time.Millisecond

func (c *Communicator) looker() (*looker, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	return &looker{control: c.control, ctx: ctx}, cancel
}

// count reads the counters of a channel.
func (l *looker) count(s ChannelState, seen proxy.Word, expected uintptr) ChannelState {
	if l.control.hostDev == nil {
		s.Known = true
		s.Seen = atomic.LoadUint64((*uint64)(pointer(seen.Device)))
		s.Expected = atomic.LoadUint64((*uint64)(pointer(expected)))
		return s
	}
	if l.silent {
		return s
	}
	var err error
	s.Seen, s.Expected, err = l.control.engine.look(l.ctx, seen, expected)
	s.Known, l.silent = err == nil, err != nil
	return s
}

func (l *looker) pair(p pair, t *Transport) ChannelState {
	s := ChannelState{Kind: framework.KindMemory, Peer: p.peer, ID: uint32(p.mine), Transport: t.Name}
	return l.count(s, proxy.Word{Device: l.control.inboundAddr(p.mine)}, l.control.expectedAddr(p.mine))
}

func (ch *MemoryChannel) states(l *looker) []ChannelState {
	return []ChannelState{l.pair(ch.pair, ch.remote.transport)}
}

func (s *Symmetric) states(l *looker) []ChannelState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ChannelState
	for _, p := range s.pairs {
		all = append(all, l.pair(p, s.peers[p.peer].transport))
	}
	return all
}

func (ch *PortChannel) states(l *looker) []ChannelState {
	s := ChannelState{Kind: framework.KindPort, Peer: ch.pair.peer, ID: uint32(ch.pair.mine), Transport: ch.link.transport.Name}
	s = l.count(s, ch.inbound, l.control.expectedAddr(ch.pair.mine))
	for _, e := range ch.ends() {
		if e == nil {
			continue
		}
		s.Queued += e.service.ring.Depth()
	}
	return []ChannelState{s}
}

func (ch *SwitchChannel) states(l *looker) []ChannelState {
	s := ChannelState{Kind: framework.KindSwitch, Peer: framework.NoPeer, ID: uint32(ch.number), Transport: ch.group.t.Name}
	return []ChannelState{l.count(s, proxy.Word{Device: ch.handle.Local + uintptr(ch.handle.Flag)}, ch.handle.Expected)}
}

// String returns a line for people.
func (s ChannelState) String() string {
	with := fmt.Sprintf("rank %d", s.Peer)
	if s.Peer == framework.NoPeer {
		with = "all ranks"
	}
	text := fmt.Sprintf("%s channel %d with %s over %s: ", s.Kind, s.ID, with, s.Transport)
	switch {
	case !s.Known:
		text += "its counters are in the memory of a device that does not tell"
	case s.Expected > s.Seen:
		text += fmt.Sprintf("expected %d, seen %d: waits", s.Expected, s.Seen)
	default:
		text += fmt.Sprintf("expected %d, seen %d", s.Expected, s.Seen)
	}
	if s.Queued > 0 {
		text += fmt.Sprintf("; %d triggers wait for the proxy", s.Queued)
	}
	return text
}

// Dump writes, in one piece, the state of the communicator and all its channels,
// followed by what OnDump has added, including communicators that were split off. It
// may be called at any time, and waits for no other rank.
func (c *Communicator) Dump(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "comm %s: rank %d of %d: %s\n", c.opts.Name, c.Rank(), c.Size(), c.condition())
	for _, s := range c.Channels() {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	c.dumps.write(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// condition says in words how the communicator is.
func (c *Communicator) condition() string {
	if err := c.Err(); err != nil {
		return err.Error()
	}
	text := "running"
	if call := c.call.Load(); call != nil {
		text += fmt.Sprintf(", in %s for %v", call.op, time.Since(call.since).Round(time.Millisecond))
	}
	c.parts.mu.Lock()
	defer c.parts.mu.Unlock()
	if w := c.control.words; !c.parts.closed && atomic.LoadUint32(&w.Reported) == reportComplete {
		text += fmt.Sprintf("; kernel %d gave up waiting for rank %d: channel %d, expected %d, seen %d", w.Kernel, w.Peer, w.Channel, w.Expected, w.Seen)
	}
	return text
}

// underWay is a call for which this rank waits for others.
type underWay struct {
	op    string
	since time.Time
}

// OnDump adds f to what Dump writes. f may be called at any time, from any goroutine,
// and should not wait. The function that OnDump returns removes f; it waits until f is
// not running.
func (c *Communicator) OnDump(f func(io.Writer)) (remove func()) { return c.dumps.add(f) }

// dumps are the additions to a dump, in their order.
type dumps struct {
	mu   sync.RWMutex // held for reading while they run
	list []*func(io.Writer)
}

func (d *dumps) add(f func(io.Writer)) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, &f)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.list = slices.DeleteFunc(d.list, func(x *func(io.Writer)) bool { return x == &f })
	}
}

func (d *dumps) write(w io.Writer) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, f := range d.list {
		(*f)(w)
	}
}
