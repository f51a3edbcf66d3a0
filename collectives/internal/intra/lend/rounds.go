package lend

import (
	"context"
	"errors"
	"time"
)

// said is a message of another rank.
type said struct {
	rank   int
	kind   kind
	number uint64
}

// leader is the work of rank 0.
type leader struct {
	*Lender
	inbox   chan said
	meeting uint64 // the number of the next one
	come    int    // ranks that wait there
	late    *time.Timer
	missed  int // meetings, one after the other
}

func (l *Lender) lead(ctx context.Context) {
	defer l.end()
	x := &leader{Lender: l, inbox: make(chan said), meeting: 1, late: time.NewTimer(0)}
	x.late.Stop()
	for r := 1; r < l.link.Size(); r++ {
		l.group.Go(func() { l.listen(ctx, r, x.inbox) })
	}
	for x.step(ctx) {
	}
	_ = l.send(ctx, gone, 0)
}

// listen passes on what a rank says.
func (l *Lender) listen(ctx context.Context, rank int, inbox chan<- said) {
	for {
		k, number := l.hear(ctx, rank)
		select {
		case inbox <- said{rank, k, number}:
		case <-ctx.Done():
			return
		}
		if k == gone {
			return
		}
	}
}

// step waits for something to do, and does it. It is false if that was the last.
func (l *leader) step(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.asks:
		return l.round(ctx)
	case n := <-l.comes:
		return l.enter(ctx, n)
	case <-l.late.C:
		return l.part(ctx, false)
	case m := <-l.inbox:
		switch m.kind {
		case request:
			return l.round(ctx)
		case come:
			return l.enter(ctx, m.number)
		case gone:
			return false
		}
		return true
	}
}

// enter notes that a rank has come to a meeting, which may be over.
func (l *leader) enter(ctx context.Context, n uint64) bool {
	if n != l.meeting {
		return true
	}
	if l.come++; l.come == l.link.Size() {
		return l.part(ctx, true)
	}
	if l.come == 1 {
		l.late.Reset(max(meetPatience>>l.missed, leastMeeting))
	}
	return true
}

// part ends the meeting.
func (l *leader) part(ctx context.Context, all bool) bool {
	l.late.Stop()
	n, word := l.meeting, met
	l.meeting, l.come = n+1, 0
	if l.missed++; all {
		l.missed = 0
	} else {
		word = missed
	}
	l.agree(n, all)
	return l.send(ctx, word, n) == nil
}

// round leads a round. It is false if there are to be no more.
func (l *leader) round(ctx context.Context) bool {
	defer l.finish()
	agreed, heard := l.freeze(ctx), true
	if agreed {
		if l.send(ctx, prepare, 0) != nil {
			return false
		}
		agreed, heard = l.collect(ctx, yes, no)
	}
	if !agreed || !heard {
		return l.send(ctx, cancel, 0) == nil && heard
	}
	if err := errors.Join(l.send(ctx, commit, 0), l.unmap()); err != nil { // one that has not heard it has left, and no call is made without it
		return false
	}
	if _, heard = l.collect(ctx, done, done); !heard {
		return false
	}
	return l.send(ctx, release, 0) == nil && l.owner.Free() == nil
}

// collect waits for an answer of each rank: whether all have given the good one, and whether all have given one. Ranks that
// come to a meeting meanwhile are let in.
func (l *leader) collect(ctx context.Context, good, bad kind) (all, heard bool) {
	late := time.NewTimer(replyPatience)
	defer late.Stop()
	all = true
	for missing := l.link.Size() - 1; missing > 0; {
		select {
		case m := <-l.inbox:
			switch m.kind {
			case good:
				missing--
			case bad:
				all = false
				missing--
			case come:
				l.enter(ctx, m.number)
			case gone:
				return false, false
			}
		case <-late.C:
			return false, false
		case <-ctx.Done():
			return false, false
		}
	}
	return all, true
}

// follow is the work of the other ranks.
func (l *Lender) follow(ctx context.Context) {
	defer l.end()
	for {
		var err error
		switch k, number := l.hear(ctx, 0); k {
		case prepare:
			answer := no
			if l.freeze(ctx) {
				answer = yes
			}
			err = l.send(ctx, answer, 0)
		case commit:
			if err = l.unmap(); err == nil {
				err = l.send(ctx, done, 0)
			}
		case release:
			err = l.owner.Free()
			l.finish()
		case cancel:
			l.finish()
		case met, missed:
			l.agree(number, k == met)
		default:
			return
		}
		if err != nil {
			_ = l.send(ctx, gone, 0)
			return
		}
	}
}
