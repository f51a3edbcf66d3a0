package shm

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// registration is local memory: a range of a memfd.
type registration struct {
	share         framework.Share
	offset, bytes uint64
}

func (r *registration) close() { _ = r.share.Close() }

// Register takes memory that has a sealed memfd.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := t.register(ctx, seg)
	if err != nil {
		return r, failure("register", err)
	}
	return r, nil
}

func (t *Transport) register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	var none framework.Registration
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if !onHost(seg.Device) {
		return none, fmt.Errorf("%w: memory of %s: expected host memory", framework.ErrUnsupported, seg.Device)
	}
	fd, local := pick(seg.Shares)
	if fd == nil {
		return none, fmt.Errorf("%w: memory without a share of kind %s: expected memory from Alloc", framework.ErrUnsupported, framework.ShareMemFD)
	}
	if err := memfd.Check(fd.FD, seg.Offset, seg.Bytes); err != nil {
		return none, err
	}
	// A local share is of use to peers in the same process, and spares them a
	// second mapping. All others go on to the descriptor.
	shares := []framework.Share{*fd, *fd}
	if local != nil {
		shares = append([]framework.Share{*local}, shares...)
	}
	own, err := framework.DupShares(shares)
	if err != nil {
		return none, err
	}
	last := len(own) - 1
	k := key{offset: seg.Offset, bytes: seg.Bytes, local: local != nil}
	return framework.Registration{
		ID:  t.made.Keep(&registration{share: own[last], offset: seg.Offset, bytes: seg.Bytes}),
		Key: framework.Parcel{Data: k.append(nil), Shares: own[:last:last]},
	}, nil
}

func onHost(d framework.Device) bool { return d.Type == "" || d == framework.Host }

// pick returns the first memfd and the first local share.
func pick(shares []framework.Share) (fd, local *framework.Share) {
	of := func(k framework.ShareKind) *framework.Share {
		if i := slices.IndexFunc(shares, func(s framework.Share) bool { return s.Kind == k }); i >= 0 {
			return &shares[i]
		}
		return nil
	}
	return of(framework.ShareMemFD), of(framework.ShareLocal)
}

// openKey checks a peer's key against the shares that came with it. Descriptor is
// the memfd among them, borrowed.
func openKey(p framework.Parcel) (k key, descriptor framework.Share, err error) {
	if k, err = decodeKey(p.Data); err != nil {
		return k, descriptor, err
	}
	want := []framework.ShareKind{framework.ShareMemFD}
	if k.local {
		want = []framework.ShareKind{framework.ShareLocal, framework.ShareMemFD}
	}
	if !slices.EqualFunc(p.Shares, want, func(s framework.Share, k framework.ShareKind) bool { return s.Kind == k }) {
		return k, descriptor, fmt.Errorf("%w: key with %d shares: expected %v; descriptors reach ranks of the same host only", framework.ErrPeer, len(p.Shares), want)
	}
	descriptor = p.Shares[len(p.Shares)-1]
	if err := memfd.Check(descriptor.FD, k.offset, k.bytes); err != nil {
		return k, descriptor, fmt.Errorf("%w: key: %v", framework.ErrPeer, err)
	}
	return k, descriptor, nil
}
