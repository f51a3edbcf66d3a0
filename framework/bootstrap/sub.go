package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"
)

// member is what Sub needs of the bootstrap of a whole job.
type member interface {
	framework.Bootstrap
	Watcher
	group(key uint64) *failure.State
	announce(key uint64, cause error)
	depart(key uint64, cause error)
}

// sub is a group of ranks seen as a job of its own.
type sub struct {
	parent  framework.Bootstrap
	member  member  // parent, if it is one of ours
	watcher Watcher // parent, if it is another one that tells of failures
	key     uint64
	ranks   []int // group rank -> parent rank
	me      int
	index   map[int]int    // parent rank -> group rank
	fate    *failure.State // the parent keeps it as long as the group does; if it cannot tell of failures, it is alone

	once sync.Once
	err  error // of the group, translated
}

// Sub makes a group of some ranks of b look like a job of its own: ranks[i] of b is
// rank i of the group. All members call it with the same arguments. Messages of the
// group do not mix with those of b, nor with those of groups with another base or other
// members.
//
// The result is a Watcher. A rank that announces the end of the group ends only that
// group; the death of any process of the job ends all its groups. Over a Watcher of an
// application, group and job end together.
func Sub(b framework.Bootstrap, ranks []int, base framework.Tag) framework.Bootstrap {
	s := &sub{parent: b, ranks: append([]int{}, ranks...), me: -1}
	key := uint64(0)
	if outer, ok := b.(*sub); ok { // one translation is enough
		s.parent, key = outer.parent, outer.key
		for i, r := range ranks {
			s.ranks[i] = outer.parentRank(r)
		}
	}
	key = mix(key, uint64(base))
	for _, r := range s.ranks {
		key = mix(key, uint64(r))
	}
	s.key = key | 1 // never 0: that is the job
	s.index = make(map[int]int, len(s.ranks))
	for i, r := range s.ranks {
		s.index[r] = i
		if r == s.parent.Rank() {
			s.me = i
		}
	}
	s.fate = failure.New()
	if m, ok := s.parent.(member); ok {
		s.member, s.fate = m, m.group(s.key)
	} else {
		s.watcher, _ = s.parent.(Watcher)
	}
	return s
}

// mix is the finalizer of splitmix64 over both values: for a fixed first value a
// bijection of the second, and different enough for different first ones.
func mix(a, b uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *sub) Rank() int { return s.me }
func (s *sub) Size() int { return len(s.ranks) }

// tag maps a tag of the group into the part of the parent's tags that belongs to
// this module.
func (s *sub) tag(t framework.Tag) framework.Tag {
	return framework.Tag(mix(s.key, uint64(t)) | 1<<63)
}

func (s *sub) parentRank(r int) int {
	if r < 0 || r >= len(s.ranks) {
		return -1
	}
	return s.ranks[r]
}

func (s *sub) Send(ctx context.Context, to int, tag framework.Tag, p framework.Parcel) error {
	return s.within(ctx, "send", to, func(ctx context.Context, parent int) error {
		return s.parent.Send(ctx, parent, s.tag(tag), p)
	})
}

func (s *sub) Recv(ctx context.Context, from int, tag framework.Tag) (p framework.Parcel, err error) {
	err = s.within(ctx, "recv", from, func(ctx context.Context, parent int) error {
		p, err = s.parent.Recv(ctx, parent, s.tag(tag))
		return err
	})
	return p, err
}

// within runs an operation of the parent that also ends with the group.
func (s *sub) within(ctx context.Context, op string, peer int, f func(ctx context.Context, parent int) error) error {
	if s.me < 0 {
		return failure.Op(op, framework.NoPeer, fmt.Errorf("%w: this rank is not a member of the group", framework.ErrInvalid))
	}
	parent := s.parentRank(peer)
	if parent < 0 {
		return failure.Op(op, framework.NoPeer, errRange(peer, len(s.ranks)))
	}
	if err := s.Err(); err != nil {
		return failure.Op(op, peer, err)
	}
	ctx, stop := s.fate.Until(ctx, parent, lastWords)
	defer stop()
	until := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-s.Failed():
			cancel()
		case <-finished:
		}
	}()
	err := f(ctx, parent)
	if err == nil {
		return nil
	}
	if failed := s.Err(); failed != nil {
		return failure.Op(op, peer, failed)
	}
	return s.translate(departureOr(until, err))
}

// translate turns the parent rank that an error blames into a rank of the group.
func (s *sub) translate(err error) error {
	var e *framework.Error
	peer := framework.PeerOf(err)
	if peer == framework.NoPeer || !errors.As(err, &e) {
		return err
	}
	out := framework.Error{Op: e.Op, Transport: e.Transport, Peer: framework.NoPeer, Err: e.Err}
	if r, ok := s.index[peer]; ok {
		out.Peer = r
		return &out
	}
	// Its number means nothing here, so no error below may offer it as a peer.
	class := framework.Class(err)
	if class == nil {
		class = framework.ErrPeer
	}
	out.Err = fmt.Errorf("%w: rank %d of the whole job, not of this group: %v", class, peer, e.Err)
	return &out
}

func (s *sub) Failed() <-chan struct{} {
	if s.watcher != nil {
		return s.watcher.Failed()
	}
	return s.fate.Done()
}

func (s *sub) Err() error {
	err := s.fate.Cause()
	if s.watcher != nil {
		err = s.watcher.Err()
	}
	if err == nil {
		return nil
	}
	s.once.Do(func() { s.err = s.translate(err) })
	return s.err
}

// Announce ends the group on all its members.
func (s *sub) Announce(cause error) {
	culprit := s.parent.Rank()
	if r := s.parentRank(framework.PeerOf(cause)); r >= 0 {
		culprit = r
	}
	cause = &framework.Error{Op: "group", Peer: culprit, Err: cause}
	switch {
	case s.member != nil:
		s.member.announce(s.key, cause)
	case s.watcher != nil:
		s.watcher.Announce(cause)
	default:
		s.fate.Fail(cause)
	}
}

// Depart implements Leaver. Over a Watcher of an application, a rank that leaves ends the group.
func (s *sub) Depart(cause error) {
	if s.member == nil {
		s.Announce(cause)
		return
	}
	s.member.depart(s.key, cause)
}

// Departed implements Leaver.
func (s *sub) Departed() (rank int, why error) {
	if rank, why = s.fate.Departed(); rank == framework.NoPeer {
		return rank, nil
	}
	why = s.translate(why)
	return framework.PeerOf(why), why
}

// Leave does nothing: a rank that is done with a group is still a member of the job.
func (s *sub) Leave() {}

// SameHost implements SameHoster.
func (s *sub) SameHost(rank int) bool {
	parent := s.parentRank(rank)
	return parent >= 0 && rounds.SameHost(s.parent, parent)
}

// HostRanks lists the group's ranks on this host, ascending.
func (s *sub) HostRanks() []int {
	var ranks []int
	for r := range s.ranks {
		if r == s.me || s.SameHost(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (s *sub) addRound() {
	if c, ok := s.parent.(interface{ addRound() }); ok {
		c.addRound()
	}
}
