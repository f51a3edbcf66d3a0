package gpulink

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// registration is local memory. Its shares live in the key alone: the rank reads and
// writes its own memory without this transport.
type registration struct{ offset, bytes uint64 }

// Register takes memory of a GPU that others can map.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := t.register(ctx, seg)
	if err != nil {
		return framework.Registration{}, t.failure("register", err)
	}
	return r, nil
}

func (t *Transport) register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	var none framework.Registration
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if seg.Device.Type != t.maker.Device {
		return none, fmt.Errorf("%w: memory of %s: expected memory of %s", framework.ErrUnsupported, seg.Device, t.maker.Memory)
	}
	if err := checkRange(seg.Offset, seg.Bytes); err != nil {
		return none, err
	}
	usable := t.usable(seg.Shares)
	if !slices.ContainsFunc(usable, func(s framework.Share) bool { return s.Kind != framework.ShareLocal }) {
		return none, fmt.Errorf("%w: memory with shares %v: expected one of %v, as memory from Alloc has where the device shares it; with gpu_memory: host, ranks share memory of the host", framework.ErrUnsupported, kindsOf(seg.Shares), t.config.Shares)
	}
	for _, s := range usable {
		if err := checkShare(s, seg.Offset, seg.Bytes); err != nil {
			return none, err
		}
	}
	own, err := framework.DupShares(usable)
	if err != nil {
		return none, err
	}
	k := key{offset: seg.Offset, bytes: seg.Bytes, kinds: kindsOf(own)}
	return framework.Registration{
		ID:  t.made.Keep(&registration{seg.Offset, seg.Bytes}),
		Key: framework.Parcel{Data: k.append(t.maker.Parcels, nil), Shares: own},
	}, nil
}

// usable are the shares that peers could use: one of each kind, those of the own
// process first, then in the order of preference. Which of them a peer takes depends
// on the pair, which is not known here.
func (t *Transport) usable(shares []framework.Share) []framework.Share {
	var list []framework.Share
	for _, s := range shares {
		known := s.Kind == framework.ShareLocal || t.config.uses(s.Kind)
		if known && !slices.Contains(kindsOf(list), s.Kind) {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b framework.Share) int { return t.config.order(a.Kind) - t.config.order(b.Kind) })
	return list
}

func kindsOf(shares []framework.Share) []framework.ShareKind {
	kinds := make([]framework.ShareKind, len(shares))
	for i, s := range shares {
		kinds[i] = s.Kind
	}
	return kinds
}

// maxBlob is more than any driver's handle has.
const maxBlob = 4096

// checkShare looks at a share as far as a process without a GPU can. Only the driver knows
// the memory behind its handle: the process that maps it checks the range.
func checkShare(s framework.Share, offset, bytes uint64) error {
	switch {
	case s.Kind.HasFD() != (s.FD != nil) || s.Kind.HasFD() && s.Blob != nil:
		return fmt.Errorf("%w: %s share: expected %s", framework.ErrInvalid, s.Kind, nature(s.Kind))
	case s.Kind == framework.ShareMemFD:
		return memfd.Check(s.FD, offset, bytes)
	case s.FD == nil:
		if len(s.Blob) == 0 || len(s.Blob) > maxBlob {
			return fmt.Errorf("%w: %s share of %d bytes: expected 1 to %d", framework.ErrInvalid, s.Kind, len(s.Blob), maxBlob)
		}
		return nil
	}
	info, err := s.FD.Stat()
	if err != nil {
		return fmt.Errorf("%w: descriptor of a %s share: %w", framework.ErrInvalid, s.Kind, err)
	}
	const never = os.ModeNamedPipe | os.ModeSocket | os.ModeDir | os.ModeSymlink
	if info.Mode()&never != 0 {
		return fmt.Errorf("%w: descriptor of a %s share is a %s: expected one that the driver exported", framework.ErrInvalid, s.Kind, strings.ToLower(info.Mode().Type().String()))
	}
	return nil
}

func nature(k framework.ShareKind) string {
	if k.HasFD() {
		return "a descriptor and no blob"
	}
	return "a blob and no descriptor"
}

// openKey checks a peer's key against the shares that came with it. To another host
// descriptors do not travel: there the shares without them have to be complete.
func (t *Transport) openKey(p framework.Parcel, remote bool) (key, error) {
	k, err := decodeKey(t.maker.Parcels, p.Data)
	if err != nil {
		return k, err
	}
	want := k.kinds
	if remote {
		want = slices.DeleteFunc(slices.Clone(want), framework.ShareKind.HasFD)
	}
	if !slices.Equal(kindsOf(p.Shares), want) {
		return k, fmt.Errorf("%w: key with shares %v: expected %v; descriptors reach ranks of the same host only", framework.ErrPeer, kindsOf(p.Shares), want)
	}
	for _, s := range p.Shares {
		if err := checkShare(s, k.offset, k.bytes); err != nil {
			return k, fmt.Errorf("%w: key: %v", framework.ErrPeer, err)
		}
	}
	return k, nil
}
