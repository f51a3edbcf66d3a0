package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/inbox"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/links"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/notice"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// group implements member.
func (t *TCP) group(key uint64) *failure.State { return t.failures.Group(key) }

func (t *TCP) peer(rank int) *peer {
	p := t.peers[rank]
	if p == nil {
		p = &peer{}
		t.peers[rank] = p
	}
	return p
}

// entry returns what is known of a rank. Before the table is complete only
// neighbors are.
func (t *TCP) entry(rank int) entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rank >= len(t.table) {
		return entry{}
	}
	return t.table[rank]
}

// adopt makes a connection with a peer a link and starts to read from it.
func (t *TCP) adopt(rank int, conn *net.TCPConn) error {
	_ = conn.SetDeadline(time.Time{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		_ = conn.Close()
		return failure.ErrClosed
	}
	l := links.New(rank, conn)
	t.links[l] = struct{}{}
	p := t.peer(rank)
	p.links++
	if p.out == nil {
		p.out = l
		l.Ready(goodbye(p.sent)) // of all links this one alone is behind all parcels
	}
	close(t.joined)
	t.joined = make(chan struct{})
	t.work.Go(func() { t.read(l) })
	if t.left {
		_, _ = l.Push(goodbye(p.sent), true, t.work.Go)
	}
	if n := t.verdict.Load(); n != nil {
		_, _ = l.Push(wire.Append(nil, wire.KindNotice, 0, n.Encode()), true, t.work.Go)
	}
	return nil
}

func goodbye(sent uint64) []byte {
	return wire.Append(nil, wire.KindGoodbye, 0, binary.LittleEndian.AppendUint64(nil, sent))
}

// read handles what arrives over a link until it ends.
func (t *TCP) read(l *links.Link) {
	defer close(l.Ended)
	for {
		f, err := wire.Read(l.Conn)
		if err == nil {
			err = t.handle(l, f)
			if err != nil {
				err = &violation{err}
			}
		}
		if err != nil {
			t.ended(l, err)
			return
		}
	}
}

// violation is what a peer sent against the protocol.
type violation struct{ error }

func (v *violation) Unwrap() error { return v.error }

func (t *TCP) handle(l *links.Link, f wire.Frame) error {
	switch f.Kind {
	case wire.KindParcel:
		r := wire.Reader{B: f.Body}
		first := r.U64("parcel")
		if r.Err != nil {
			return r.Err
		}
		p, awaited, err := wire.DecodeParcel(r.B)
		if err != nil {
			return err
		}
		if len(awaited) > 0 && t.fds == nil {
			return fmt.Errorf("%w: a parcel with descriptors: expected none from another host", framework.ErrPeer)
		}
		t.inbox.Put(l.Peer, framework.Tag(f.Tag), inbox.Message{Parcel: p, First: first, Awaited: awaited})
		t.mu.Lock()
		t.peer(l.Peer).received++
		t.mu.Unlock()
		t.settle(l.Peer, false)
	case wire.KindNotice:
		n, err := notice.Decode(f.Body, t.party.Size)
		if err != nil {
			return err
		}
		t.pass(n)
	case wire.KindGoodbye:
		r := wire.Reader{B: f.Body}
		expected := r.U64("goodbye")
		if err := r.End("goodbye"); err != nil {
			return err
		}
		t.mu.Lock()
		p := t.peer(l.Peer)
		p.goodbye, p.expected = true, max(p.expected, expected)
		t.mu.Unlock()
		t.settle(l.Peer, false)
	default:
		return fmt.Errorf("%w: message of type %d: expected none here", framework.ErrPeer, f.Kind)
	}
	return nil
}

// settle marks a peer as gone once it has said goodbye and all it sent is here,
// which may take more than one link; or when that cannot happen any more.
func (t *TCP) settle(rank int, anyway bool) {
	t.mu.Lock()
	p := t.peer(rank)
	gone := p.goodbye && (p.received >= p.expected || anyway)
	t.mu.Unlock()
	if !gone {
		return
	}
	err := failure.Left(rank)
	if why := t.failures.Job.Why(rank); why != nil {
		err = why
	}
	if n := t.verdict.Load(); n != nil {
		err = n.Err() // it leaves because of that; the news is on its way through this rank
	}
	t.inbox.Depart(rank, err)
}

// ended decides what the end of a link means.
func (t *TCP) ended(l *links.Link, err error) {
	l.Fail(fmt.Errorf("%w: the connection has ended: %w", framework.ErrPeer, err))
	l.Shut()
	t.mu.Lock()
	delete(t.links, l)
	p := t.peer(l.Peer)
	p.links--
	leaving, last := p.goodbye, p.links == 0
	t.mu.Unlock()
	var v *violation
	switch {
	case errors.As(err, &v):
		t.pass(notice.Notice{Origin: t.party.Rank, Culprit: l.Peer, Text: fmt.Sprintf("it sent nonsense: %v", err)})
	case !leaving:
		t.suspect(l.Peer, fmt.Sprintf("it died: its connection ended without a goodbye (%v)", err))
	case last:
		t.settle(l.Peer, false)
		t.after(lingerTimeout, func() { t.settle(l.Peer, true) })
	}
}

// suspect blames a rank, unless within a moment another announcement says what really happened.
func (t *TCP) suspect(rank int, why string) {
	t.mu.Lock()
	p := t.peer(rank)
	idle := t.left || t.closing || p.goodbye || p.suspected
	p.suspected = p.suspected || !idle
	t.mu.Unlock()
	if idle {
		return
	}
	t.after(lastWords, func() {
		t.mu.Lock()
		idle := t.left || t.closing || p.goodbye
		t.mu.Unlock()
		if !idle {
			t.pass(notice.Notice{Origin: t.party.Rank, Culprit: rank, Text: why})
		}
	})
}

// after runs f later, unless the bootstrap is closed before.
func (t *TCP) after(d time.Duration, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return
	}
	t.work.Go(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			f()
		case <-t.life.Done():
		}
	})
}

// pass takes note of an end and, if it is news, tells the neighbors.
func (t *TCP) pass(n notice.Notice) {
	if n.Departs {
		t.tell(n)
		return
	}
	if t.spread(n, n.Err(), lastWords) {
		t.cfg.Log.Warn("bootstrap: a rank has failed", "culprit", n.Culprit, "cause", n.Text, "reported_by", n.Origin)
	}
}

// spread tells the neighbors, and only then lets this rank see the end, within a
// bound: the process may exit as soon as it does, and if the news did not get out
// before, the next rank would blame this one.
func (t *TCP) spread(n notice.Notice, own error, bound time.Duration) bool {
	t.keep(n) // before a goodbye that follows on another link is read
	t.mu.Lock()
	known := t.ends[n.Group] || t.failures.Group(n.Group).Cause() != nil
	t.ends[n.Group] = true
	t.mu.Unlock()
	if known {
		return false
	}
	flushAll(t.flood(n), bound)
	return t.failures.Fail(n.Group, own)
}

// keep remembers how the job ended, for ranks that connect afterwards.
func (t *TCP) keep(n notice.Notice) {
	if n.Group == 0 {
		t.verdict.CompareAndSwap(nil, &n)
	}
}

func (t *TCP) flood(n notice.Notice) []*links.Link {
	b := wire.Append(nil, wire.KindNotice, 0, n.Encode())
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*links.Link, 0, len(t.links))
	for l := range t.links {
		if _, err := l.Push(b, true, t.work.Go); err == nil {
			all = append(all, l)
		}
	}
	return all
}

// Announce implements Watcher.
func (t *TCP) Announce(cause error) { t.announce(0, cause) }

func (t *TCP) announce(group uint64, cause error) {
	n := notice.Announcement(group, t.party.Rank, cause)
	if !t.isClosing() {
		t.spread(n, n.Own(cause), flushTimeout)
	}
}

// flushAll waits, within a bound, until the kernel has what was queued: the
// process may exit next.
func flushAll(all []*links.Link, bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	for _, l := range all {
		l.Flush(ctx)
	}
}

// Leave implements Watcher.
func (t *TCP) Leave() {
	t.mu.Lock()
	if t.left {
		t.mu.Unlock()
		return
	}
	t.left = true
	all := make([]*links.Link, 0, len(t.links))
	for l := range t.links {
		if _, err := l.Push(goodbye(t.peer(l.Peer).sent), true, t.work.Go); err == nil {
			all = append(all, l)
		}
	}
	t.mu.Unlock()
	flushAll(all, flushTimeout)
}

// Close leaves the job, in order if the job has not failed, and frees everything.
func (t *TCP) Close() error {
	t.Leave()
	t.mu.Lock()
	if t.closing {
		t.mu.Unlock()
		return nil
	}
	t.closing = true
	all := make([]*links.Link, 0, len(t.links))
	for l := range t.links {
		all = append(all, l)
	}
	t.mu.Unlock()

	bound := lingerTimeout
	if t.failures.Job.Cause() != nil {
		bound = lastWords
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	t.end()
	t.cfg.closeListener()
	if t.listener != nil {
		_ = t.listener.Close()
	}
	var group sync.WaitGroup
	for _, l := range all {
		group.Go(func() { l.Close(ctx) })
	}
	group.Wait()
	t.inbox.Close(failure.ErrClosed)
	if t.fds != nil {
		t.fds.Close()
	}
	t.work.Wait()
	return nil
}

// neighbors lists the ranks to which a rank of n keeps links: those at the
// distances of the collectives.
func neighbors(rank, n int) []int {
	seen := map[int]bool{rank: true}
	var out []int
	for _, d := range rounds.Distances(n) {
		for _, r := range [2]int{(rank + d) % n, (rank - d + n) % n} {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	return out
}
