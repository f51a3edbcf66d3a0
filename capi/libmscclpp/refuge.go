package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/setup"
)

// refuge is where the ranks that are left of a job meet when others have gone. The first of them is the rank 0 of a new
// job. So each rank listens for that case from the start, and all know where: after a death there is nobody to ask.
type refuge struct {
	listener *net.TCPListener
	ids      []bootstrap.UniqueID // by rank of the job, for which this rank is the first that is left
}

// newRefuge makes the refuge of a job; nil for a job of one rank. Ranks whose programs have different versions refuse. Collective.
func newRefuge(ctx context.Context, j *setup.Job, version string) (*refuge, error) {
	if j.World.Size() == 1 {
		return nil, nil
	}
	l, own, err := listenBeside(ctx, j.Boot.Addr())
	if err != nil {
		return nil, err
	}
	r := &refuge{listener: l}
	all, err := j.World.AllGather(ctx, append(own[:], version...))
	if err == nil {
		err = r.take(all)
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// take reads what the ranks have said: an id, and then a version.
func (r *refuge) take(all [][]byte) error {
	const size = len(bootstrap.UniqueID{})
	for rank, b := range all {
		id, err := bootstrap.UniqueIDFromBytes(b[:min(len(b), size)])
		if err != nil {
			return &framework.Error{Op: "comm join", Peer: rank, Err: err}
		}
		if first, own := all[0][size:], b[size:]; !bytes.Equal(first, own) {
			return fmt.Errorf("%w: versions differ: rank 0 version %s rank %d version %s: expected the same in all ranks", framework.ErrUnsupported, first, rank, own)
		}
		r.ids = append(r.ids, id)
	}
	return nil
}

// listenBeside listens at another port of an address.
func listenBeside(ctx context.Context, address string) (*net.TCPListener, bootstrap.UniqueID, error) {
	at, err := netip.ParseAddrPort(address)
	if err == nil && !at.Addr().IsUnspecified() {
		return bootstrap.Listen(ctx, netip.AddrPortFrom(at.Addr(), 0).String())
	}
	return listenOnAll(ctx)
}

// place is this rank's place in the job of the ranks that are left.
func (r *refuge) place(left []int, me int) (*setup.Place, error) {
	var name []byte
	for _, rank := range left {
		name = binary.AppendUvarint(name, uint64(rank))
	}
	// One of these ranks may be in another such job, with ranks that were excluded here.
	p := &setup.Place{ID: r.ids[left[0]].Successor(name), Rank: slices.Index(left, me), Size: len(left)}
	if p.Rank > 0 {
		return p, nil
	}
	// A second descriptor of the same socket: that of the refuge serves again if the job does not come about.
	f, err := r.listener.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.Listener, err = net.FileListener(f)
	return p, err
}

func (r *refuge) close() error {
	if r == nil {
		return nil
	}
	return r.listener.Close()
}

// shrink makes the communicator of the ranks that are not excluded; it was not joined yet.
func (c *communicator) shrink(p *parts, excluded []int, abort bool) (*communicator, error) {
	left, err := p.without(excluded)
	if err != nil {
		return nil, fmt.Errorf("comm shrink: %w", err)
	}
	if abort {
		cause := fmt.Errorf("%w: aborted: it was shrunk", framework.ErrClosed)
		c.end(cause)
		p.world.Abort(cause)
	}
	j := p.job
	child := newCommunicator(c.timeout)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.users == 0 {
		return nil, errDestroyed
	}
	if j.shrunk != nil && j.shrunk.open() {
		return nil, fmt.Errorf("%w: comm shrink: the job was shrunk before, and what came of it is open: expected a call on that communicator, or its end first", framework.ErrInvalid)
	}
	child.plan, child.version, child.left = j.plan, j.version, left
	if child.plan.Place, err = j.refuge.place(left, p.world.JobRank(p.world.Rank())); err != nil {
		return nil, fmt.Errorf("comm shrink: %w", err)
	}
	if s, ok := j.log.(*sharedLog); ok {
		child.log = s.share()
	}
	j.shrunk = child
	return child, nil
}

// without lists the ranks, as numbers of the job, that are not excluded.
func (p *parts) without(excluded []int) (left []int, err error) {
	if len(excluded) == 0 {
		return nil, fmt.Errorf("%w: no rank is excluded: expected one or more", framework.ErrInvalid)
	}
	n, me := p.world.Size(), p.world.Rank()
	for _, r := range excluded {
		switch {
		case r < 0 || r >= n:
			return nil, fmt.Errorf("%w: rank %d is excluded: expected ranks from 0 to %d", framework.ErrInvalid, r, n-1)
		case r == me:
			return nil, fmt.Errorf("%w: rank %d excludes itself: expected calls of the ranks that stay", framework.ErrInvalid, r)
		}
	}
	for r := range n {
		if !slices.Contains(excluded, r) {
			left = append(left, p.world.JobRank(r))
		}
	}
	return left, nil
}

// open reports whether a communicator was neither destroyed, nor has failed to come about.
func (c *communicator) open() bool {
	if c.ctx.Err() != nil {
		return false
	}
	select {
	case <-c.joined:
		return c.failed == nil
	default:
		return true
	}
}

// sharedLog is a log of several jobs; the last one closes it.
type sharedLog struct {
	io.Closer
	mu    sync.Mutex
	users int
}

func shareLog(log io.Closer) io.Closer {
	if log == nil {
		return nil
	}
	return &sharedLog{Closer: log, users: 1}
}

func (s *sharedLog) share() *sharedLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	return s
}

// Close implements io.Closer.
func (s *sharedLog) Close() error {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.Closer.Close()
}
