package bootstrap

import (
	"context"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/inbox"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/notice"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// Local is one of several ranks in one process. See InProcess.
type Local struct {
	rank   int
	all    []*Local
	inbox  *inbox.Inbox
	left   atomic.Bool
	counts counters
	departures
}

// InProcess connects n ranks of this process with each other. They behave as
// ranks that joined over TCP on one host do: descriptors are duplicated, and a
// rank that fails takes the others with it.
func InProcess(n int) []*Local {
	all := make([]*Local, n)
	for r := range all {
		l := &Local{rank: r, all: all, inbox: inbox.New()}
		l.departures = departures{rank: r, failures: failure.NewSet(), open: func() bool { return !l.left.Load() }, forward: l.forward}
		all[r] = l
	}
	return all
}

// Rank implements framework.Bootstrap.
func (l *Local) Rank() int { return l.rank }

// Size implements framework.Bootstrap.
func (l *Local) Size() int { return len(l.all) }

// SameHost reports whether descriptors reach rank.
func (l *Local) SameHost(rank int) bool { return rank >= 0 && rank < len(l.all) }

// HostRanks lists the ranks of this host, this one included, ascending.
func (l *Local) HostRanks() []int {
	ranks := make([]int, len(l.all))
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

// Stats returns what this rank has sent so far.
func (l *Local) Stats() Stats { return l.counts.read() }

func (l *Local) addRound() { l.counts.rounds.Add(1) }

// Send implements framework.Bootstrap. It never waits.
func (l *Local) Send(ctx context.Context, to int, tag framework.Tag, p framework.Parcel) error {
	if err := l.check(ctx, "send", to); err != nil {
		return err
	}
	if err := wire.Valid(p); err != nil {
		return failure.Op("send", to, err)
	}
	peer := l.all[to]
	if err := l.inbox.Departed(to); err != nil {
		return failure.Op("send", to, err)
	}
	d, err := p.Dup()
	if err != nil {
		return failure.Op("send", to, err)
	}
	if !peer.inbox.Put(l.rank, tag, inbox.Message{Parcel: d}) {
		return failure.Op("send", to, failure.Left(to))
	}
	l.counts.messages.Add(1)
	l.counts.bytes.Add(uint64(len(p.Data)))
	return nil
}

// Recv implements framework.Bootstrap.
func (l *Local) Recv(ctx context.Context, from int, tag framework.Tag) (framework.Parcel, error) {
	if err := l.check(ctx, "recv", from); err != nil {
		return framework.Parcel{}, err
	}
	until, stop := untilDeparted(ctx, l.failures.Job, from, tag)
	defer stop()
	m, err := l.inbox.Take(until, from, tag, l.failures.Job)
	if err != nil {
		return framework.Parcel{}, failure.Op("recv", from, departureOr(until, err))
	}
	return m.Parcel, nil
}

func (l *Local) check(ctx context.Context, op string, peer int) error {
	if peer < 0 || peer >= len(l.all) {
		return failure.Op(op, framework.NoPeer, errRange(peer, len(l.all)))
	}
	if err := l.failures.Job.Cause(); err != nil {
		return failure.Op(op, peer, err)
	}
	if l.left.Load() {
		return failure.Op(op, peer, failure.ErrClosed)
	}
	if ctx.Err() != nil {
		return failure.Op(op, peer, context.Cause(ctx))
	}
	return nil
}

// Failed implements Watcher.
func (l *Local) Failed() <-chan struct{} { return l.failures.Job.Done() }

// Err implements Watcher.
func (l *Local) Err() error { return l.failures.Job.Cause() }

// Announce implements Watcher.
func (l *Local) Announce(cause error) { l.announce(0, cause) }

func (l *Local) announce(group uint64, cause error) {
	n := notice.Announcement(group, l.rank, cause)
	if l.left.Load() || !l.failures.Fail(group, n.Own(cause)) {
		return
	}
	l.notifyAll(n)
}

func (l *Local) group(key uint64) *failure.State { return l.failures.Group(key) }

func (l *Local) notifyAll(n notice.Notice) {
	for _, other := range l.all {
		if other != l && !other.left.Load() {
			other.failures.Fail(n.Group, n.Err())
		}
	}
}

func (l *Local) forward(n notice.Notice) {
	for _, other := range l.all {
		if !other.left.Load() {
			other.failures.Group(n.Group).Depart(n.Culprit, n.Err())
		}
	}
}

// Leave implements Watcher.
func (l *Local) Leave() {
	if l.left.Swap(true) {
		return
	}
	for _, other := range l.all {
		if other != l {
			other.inbox.Depart(l.rank, failure.Left(l.rank))
		}
	}
}

// Kill ends the rank as a crash of its process would: without a goodbye, so that the
// others see it as dead. It is for tests of packages that use a bootstrap.
func (l *Local) Kill() {
	if l.left.Swap(true) {
		return
	}
	l.notifyAll(notice.Notice{Origin: l.rank, Culprit: l.rank, Text: "killed"})
	l.inbox.Close(failure.ErrClosed)
}

// Close leaves the job and closes the parcels that were not received.
func (l *Local) Close() error {
	l.Leave()
	l.inbox.Close(failure.ErrClosed)
	return nil
}
