package bootstrap

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Local is one of several ranks in one process. See InProcess.
type Local struct {
	rank   int
	all    []*Local
	inbox  *inbox
	fates  *fates
	left   atomic.Bool
	counts counters
}

// InProcess connects n ranks of this process with each other. They behave as
// ranks that joined over TCP on one host do: descriptors are duplicated, and a
// rank that fails takes the others with it.
func InProcess(n int) []*Local {
	all := make([]*Local, n)
	for r := range all {
		all[r] = &Local{rank: r, all: all, inbox: newInbox(), fates: newFates()}
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
	if err := validParcel(p); err != nil {
		return opError("send", to, err)
	}
	peer := l.all[to]
	if err := l.inbox.departed(to); err != nil {
		return opError("send", to, err)
	}
	d, err := p.Dup()
	if err != nil {
		return opError("send", to, err)
	}
	if !peer.inbox.put(l.rank, tag, message{parcel: d}) {
		return opError("send", to, errLeft(to))
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
	m, err := l.inbox.take(ctx, from, tag, l.fates.job)
	if err != nil {
		return framework.Parcel{}, opError("recv", from, err)
	}
	return m.parcel, nil
}

func (l *Local) check(ctx context.Context, op string, peer int) error {
	if peer < 0 || peer >= len(l.all) {
		return opError(op, framework.NoPeer, errRange(peer, len(l.all)))
	}
	if err := l.fates.job.cause(); err != nil {
		return opError(op, peer, err)
	}
	if l.left.Load() {
		return opError(op, peer, errClosed)
	}
	if ctx.Err() != nil {
		return opError(op, peer, context.Cause(ctx))
	}
	return nil
}

// Failed implements Watcher.
func (l *Local) Failed() <-chan struct{} { return l.fates.job.done }

// Err implements Watcher.
func (l *Local) Err() error { return l.fates.job.cause() }

// Announce implements Watcher.
func (l *Local) Announce(cause error) { l.announce(0, cause) }

func (l *Local) announce(group uint64, cause error) {
	n := announcement(group, l.rank, cause)
	if l.left.Load() || !l.fates.fail(group, n.own(cause)) {
		return
	}
	l.tell(n)
}

func (l *Local) group(key uint64) *fate { return l.fates.group(key) }

func (l *Local) tell(n notice) {
	for _, other := range l.all {
		if other != l && !other.left.Load() {
			other.fates.fail(n.group, n.err())
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
			other.inbox.depart(l.rank, errLeft(l.rank))
		}
	}
}

// Kill ends the rank as a crash of its process would: without a goodbye, so that the
// others see it as dead. It is for tests of packages that use a bootstrap.
func (l *Local) Kill() {
	if l.left.Swap(true) {
		return
	}
	l.tell(notice{origin: l.rank, culprit: l.rank, text: "killed"})
	l.inbox.close(errClosed)
}

// Close leaves the job and closes the parcels that were not received.
func (l *Local) Close() error {
	l.Leave()
	l.inbox.close(errClosed)
	return nil
}

var errClosed = fmt.Errorf("%w: the bootstrap was closed", framework.ErrClosed)
