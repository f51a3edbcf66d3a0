package comm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/porting"
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
	l, done := newLooker(c.counters)
	defer done()
	var all []ChannelState
	c.life.Each(func(part any) {
		switch part := part.(type) {
		case *PortChannel:
			all = append(all, l.port(porting.StateOf(part)))
		case interface{ states(*looker) []ChannelState }:
			all = append(all, part.states(l)...)
		}
	})
	return all
}

// looker reads counters for one dump. A device that does not answer is not asked
// again.
type looker struct {
	counters *counters.Counters
	ctx      context.Context
	silent   bool
}

const dumpTimeout = 250 * time.Millisecond

func newLooker(k *counters.Counters) (*looker, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	return &looker{counters: k, ctx: ctx}, cancel
}

// count reads the counters of a channel.
func (l *looker) count(s ChannelState, seen proxy.Word, expected uintptr) ChannelState {
	if l.counters.HostDev == nil {
		s.Known = true
		s.Seen = atomic.LoadUint64((*uint64)(counters.Pointer(seen.Device)))
		s.Expected = atomic.LoadUint64((*uint64)(counters.Pointer(expected)))
		return s
	}
	if l.silent {
		return s
	}
	var err error
	s.Seen, s.Expected, err = l.counters.Queue.Look(l.ctx, seen, expected)
	s.Known, l.silent = err == nil, err != nil
	return s
}

func (l *looker) pair(p counters.Pair, t *Transport) ChannelState {
	s := ChannelState{Kind: framework.KindMemory, Peer: p.Peer, ID: uint32(p.Mine), Transport: t.Name}
	return l.count(s, proxy.Word{Device: l.counters.InboundAddr(p.Mine)}, l.counters.ExpectedAddr(p.Mine))
}

func (ch *MemoryChannel) states(l *looker) []ChannelState {
	return []ChannelState{l.pair(ch.pair, ch.remote.Transport)}
}

func (s *Symmetric) states(l *looker) []ChannelState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ChannelState
	for _, p := range s.pairs {
		all = append(all, l.pair(p, s.peers[p.Peer].Transport))
	}
	return all
}

func (l *looker) port(p porting.State) ChannelState {
	s := ChannelState{Kind: framework.KindPort, Peer: p.Pair.Peer, ID: uint32(p.Pair.Mine), Transport: p.Transport, Queued: p.Queued}
	return l.count(s, p.Inbound, l.counters.ExpectedAddr(p.Pair.Mine))
}

func (ch *SwitchChannel) states(l *looker) []ChannelState {
	s := ChannelState{Kind: framework.KindSwitch, Peer: framework.NoPeer, ID: uint32(ch.number), Transport: ch.group.Transport.Name}
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
		text += "its counters are in the memory of a device that does not answer"
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
	for _, t := range c.opts.Transports {
		if forms := t.Forms(); len(forms) > 0 {
			var words []string
			for _, form := range slices.Sorted(maps.Keys(forms)) {
				words = append(words, fmt.Sprintf("%d as %s", forms[form], form))
			}
			fmt.Fprintf(&b, "  %s: kernel images loaded: %s\n", t.Name, strings.Join(words, ", "))
		}
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
	c.life.Running(func() {
		if w := c.counters.Words; atomic.LoadUint32(&w.Reported) == reportComplete {
			text += fmt.Sprintf("; kernel %d gave up waiting for rank %d: channel %d, expected %d, seen %d", w.Kernel, w.Peer, w.Channel, w.Expected, w.Seen)
		}
	})
	return text
}
