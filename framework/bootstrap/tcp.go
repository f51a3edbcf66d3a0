package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/fdpass"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/inbox"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/links"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/notice"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// Tags of this package, within the module's part.
const (
	tagTable framework.Tag = 1<<62 + iota
	tagHosts
)

// TCP is one rank of a job of several processes. See Join.
type TCP struct {
	party  handshake.Party
	caller caller
	cfg    Config
	inbox  *inbox.Inbox
	counts counters
	departures
	fds *fdpass.Socket // nil when descriptors cannot travel

	listener   *net.TCPListener
	self       entry
	root       netip.Addr                    // where rank 0 was reached
	verdict    atomic.Pointer[notice.Notice] // how the job ended
	instance   *instance
	rendezvous *rendezvous

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	table   []entry // of all ranks, once known; before, of neighbors
	onHost  []bool  // descriptors reach the rank
	peers   map[int]*peer
	links   map[*links.Link]struct{}
	ends    map[uint64]bool // groups whose end has been passed on
	joined  chan struct{}   // replaced and closed whenever a link is added
	left    bool
	closing bool
}

// peer is the state of another rank.
type peer struct {
	out            *links.Link   // for parcels to it; never replaced, so order is kept
	dialing        chan struct{} // closed when an attempt has ended
	links          int           // alive
	sent, received uint64        // parcels
	goodbye        bool
	expected       uint64 // parcels it had sent when it said goodbye
	suspected      bool
}

// count counts parcels.
func (p *peer) count(l *links.Link, n int64) {
	p.sent += uint64(n)
	l.Count(p.sent)
}

var (
	_ framework.Bootstrap = (*TCP)(nil)
	_ Leaver              = (*TCP)(nil)
	_ member              = (*TCP)(nil)
)

// Join makes this process a rank of a job. It returns when all ranks have their links.
// Its error says which ranks are missing, or what is wrong with this one.
//
// A job may fail before all ranks have joined, for example because two of them disagree
// about its size. Rank 0 then stays at its address to tell ranks that join later: for
// up to a second, no longer than ctx, and not at all once every rank knows. A rank that
// comes later still finds nobody. If Listen made the id of the job, that rank fails at
// once; otherwise rank 0 might yet start, and the rank waits for Timeout. Either error
// names the address.
func Join(ctx context.Context, cfg Config) (*TCP, error) {
	id, err := cfg.complete()
	if err != nil {
		cfg.closeListener()
		return nil, failure.Op("join", framework.NoPeer, err)
	}
	t := &TCP{
		party:    handshake.Party{Identity: id, Rank: cfg.Rank, Size: cfg.Size},
		cfg:      cfg,
		inbox:    inbox.New(),
		peers:    map[int]*peer{},
		links:    map[*links.Link]struct{}{},
		ends:     map[uint64]bool{},
		joined:   make(chan struct{}),
		instance: newInstance(),
	}
	t.party.Closing = t.isClosing
	t.party.Ended = func() bool { return t.isClosing() || t.verdict.Load() != nil }
	t.party.Instance = func() ([16]byte, error) { return t.instance.wait(t.life) }
	t.caller = caller{&t.party, &t.cfg}
	t.departures = departures{rank: cfg.Rank, failures: failure.NewSet(), open: func() bool { return !t.isClosing() }, forward: func(n notice.Notice) {
		if all := t.flood(n); n.Culprit == cfg.Rank {
			flushAll(all, flushTimeout)
		}
	}}
	t.life, t.end = context.WithCancel(context.Background())
	callers := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("%w: not all ranks came within %v", context.DeadlineExceeded, cfg.Timeout))
	defer cancel()
	if err := (&startup{t: t}).join(ctx); err != nil {
		t.announce(0, err)
		t.rendezvous.explained(callers)
		_ = t.Close()
		cfg.closeListener() // if it failed before it was used
		return nil, failure.Op("join", framework.NoPeer, err)
	}
	return t, nil
}

// Rank implements framework.Bootstrap.
func (t *TCP) Rank() int { return t.party.Rank }

// Size implements framework.Bootstrap.
func (t *TCP) Size() int { return t.party.Size }

// Stats returns what this rank has sent so far.
func (t *TCP) Stats() Stats { return t.counts.read() }

func (t *TCP) addRound() { t.counts.rounds.Add(1) }

// Failed implements Watcher.
func (t *TCP) Failed() <-chan struct{} { return t.failures.Job.Done() }

// Err implements Watcher.
func (t *TCP) Err() error { return t.failures.Job.Cause() }

// Addr returns where this rank listens, for messages.
func (t *TCP) Addr() string {
	if t.listener == nil {
		return ""
	}
	return t.listener.Addr().String()
}

func (t *TCP) isClosing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closing || t.left
}

// Send implements framework.Bootstrap. It returns when the parcel is queued or
// on its way, not when it has arrived.
func (t *TCP) Send(ctx context.Context, to int, tag framework.Tag, p framework.Parcel) error {
	if err := t.check(ctx, "send", to); err != nil {
		return err
	}
	if err := wire.Valid(p); err != nil {
		return failure.Op("send", to, err)
	}
	if to == t.party.Rank {
		d, err := p.Dup()
		if err != nil {
			return failure.Op("send", to, err)
		}
		t.inbox.Put(to, tag, inbox.Message{Parcel: d})
		return nil
	}
	if err := t.send(ctx, to, tag, p); err != nil {
		return failure.Op("send", to, t.explain(ctx, to, err))
	}
	return nil
}

func (t *TCP) send(ctx context.Context, to int, tag framework.Tag, p framework.Parcel) error {
	l, err := t.linkTo(ctx, to)
	if err != nil {
		return err
	}
	withFDs := t.SameHost(to)
	var first uint64
	if withFDs {
		// They go first: the receiver of the frame has the descriptors close by.
		if first, err = t.fds.Send(ctx, t.life, t.entry(to).socket, to, p.Shares); err != nil {
			return err
		}
	}
	b := make([]byte, wire.HeaderSize+8, wire.HeaderSize+32+len(p.Data))
	b = wire.AppendParcel(b, p, withFDs)
	if len(b) > wire.MaxFrame {
		return fmt.Errorf("%w: a parcel of %d bytes with its blobs: expected at most %d", framework.ErrInvalid, len(b), wire.MaxFrame)
	}
	wire.PutParcelHeader(b, uint64(tag), first)
	t.mu.Lock()
	t.peers[to].count(l, 1)
	t.mu.Unlock()
	if err := l.Send(ctx, b, t.failures.Job, t.work.Go); err != nil {
		t.mu.Lock()
		t.peers[to].count(l, -1)
		t.mu.Unlock()
		return err
	}
	t.counts.messages.Add(1)
	t.counts.bytes.Add(uint64(len(b)))
	return nil
}

// Recv implements framework.Bootstrap.
func (t *TCP) Recv(ctx context.Context, from int, tag framework.Tag) (framework.Parcel, error) {
	if err := t.check(ctx, "recv", from); err != nil {
		return framework.Parcel{}, err
	}
	// Of a rank without a link one would not learn that it has left.
	watch := time.AfterFunc(watchDelay, func() { t.watch(from) })
	defer watch.Stop()
	until, stop := untilDeparted(ctx, t.failures.Job, from, tag)
	defer stop()
	m, err := t.inbox.Take(until, from, tag, t.failures.Job)
	if err != nil {
		return framework.Parcel{}, failure.Op("recv", from, departureOr(until, err))
	}
	if len(m.Awaited) > 0 {
		files, err := t.fds.Take(ctx, t.failures.Job, from, m.First, len(m.Awaited))
		if err != nil {
			return framework.Parcel{}, failure.Op("recv", from, err)
		}
		for i, at := range m.Awaited {
			m.Parcel.Shares[at].FD = files[i]
		}
	}
	return m.Parcel, nil
}

func (t *TCP) check(ctx context.Context, op string, peer int) error {
	if peer < 0 || peer >= t.party.Size {
		return failure.Op(op, framework.NoPeer, errRange(peer, t.party.Size))
	}
	if err := t.failures.Job.Cause(); err != nil {
		return failure.Op(op, peer, err)
	}
	if t.isClosing() {
		return failure.Op(op, peer, failure.ErrClosed)
	}
	if ctx.Err() != nil {
		return failure.Op(op, peer, context.Cause(ctx))
	}
	return nil
}

// await waits for the end of the job, for a moment.
func (t *TCP) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.failures.Job.Done():
	case <-timer.C:
	case <-ctx.Done():
	case <-t.life.Done():
	}
}
