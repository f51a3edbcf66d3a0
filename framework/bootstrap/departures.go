package bootstrap

import (
	"context"
	"errors"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/notice"
)

// departures are how a rank leaves while the others go on, and how it learns that others have.
type departures struct {
	rank     int
	failures *failure.Set
	open     func() bool           // this rank has not left in another way
	forward  func(n notice.Notice) // to others, of which each passes it on
}

// Depart implements Leaver.
func (p *departures) Depart(cause error) { p.depart(0, cause) }

// Departed implements Leaver.
func (p *departures) Departed() (rank int, why error) { return p.failures.Job.Departed() }

// depart implements member.
func (p *departures) depart(group uint64, cause error) {
	if p.open() {
		p.tell(notice.Departure(group, p.rank, cause))
	}
}

// tell passes on that a rank has left, if it is news.
func (p *departures) tell(n notice.Notice) {
	if p.failures.Group(n.Group).Depart(n.Culprit, n.Err()) {
		p.forward(n)
	}
}

// groupTags are the tags of groups: see sub.tag.
const groupTags = 1 << 63

// untilDeparted is the context in which a rank of the job is waited for: it ends when that rank has left. A rank that
// has left the job as a whole may still be in groups, whose parcels have tags of their own.
func untilDeparted(ctx context.Context, job *failure.State, from int, tag framework.Tag) (context.Context, context.CancelFunc) {
	if tag&groupTags != 0 {
		return ctx, func() {}
	}
	return job.Until(ctx, from, lastWords)
}

// departureOr returns the departure that has ended a wait, or else what the wait has returned.
func departureOr(until context.Context, err error) error {
	cause := context.Cause(until)
	if cause == nil || !errors.Is(cause, framework.ErrPeer) || errors.Is(err, framework.ErrPeer) && framework.PeerOf(err) != framework.NoPeer {
		return err
	}
	return cause
}
