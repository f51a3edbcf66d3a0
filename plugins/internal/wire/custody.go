package wire

import (
	"context"
	"fmt"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plugins/internal/fdsock"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// packer turns shares into messages and remembers which descriptors go with them.
// It borrows the descriptors.
type packer struct {
	files  []*os.File
	shares []*pb.Share // those that cite files, in the same order
	err    error       // the first bad share
}

func (p *packer) share(s framework.Share) *pb.Share {
	m := &pb.Share{Kind: string(s.Kind), Blob: s.Blob}
	switch fd := s.Kind.HasFD(); {
	case fd && s.FD == nil:
		p.fail("share of kind %s without a descriptor", s.Kind)
	case !fd && s.FD != nil:
		p.fail("share of kind %s with a descriptor", s.Kind)
	case fd:
		p.files = append(p.files, s.FD)
		p.shares = append(p.shares, m)
	}
	return m
}

func (p *packer) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: "+format, append([]any{framework.ErrInvalid}, args...)...)
	}
}

func (p *packer) sharesOf(in []framework.Share) []*pb.Share {
	out := make([]*pb.Share, len(in))
	for i, s := range in {
		out[i] = p.share(s)
	}
	return out
}

func (p *packer) parcel(in framework.Parcel) *pb.Parcel {
	return &pb.Parcel{Data: in.Data, Shares: p.sharesOf(in.Shares)}
}

// send sends the descriptors on behalf of a call and writes their numbers into the
// messages.
func (p *packer) send(ctx context.Context, fds *fdsock.Conn, call uint64) error {
	if p.err != nil || len(p.files) == 0 {
		return p.err
	}
	numbers, err := fds.Send(ctx, call, p.files)
	if err != nil {
		return err
	}
	for i, n := range numbers {
		p.shares[i].Fd = n
	}
	return nil
}

// opener turns messages into shares and claims the descriptors that they cite. It
// owns them until keep.
type opener struct {
	ctx   context.Context
	fds   *fdsock.Conn
	call  uint64
	files []*os.File
	err   error // the first thing that was wrong
}

func (o *opener) share(m *pb.Share) framework.Share {
	s := framework.Share{Kind: framework.ShareKind(m.GetKind()), Blob: m.GetBlob()}
	switch fd := s.Kind.HasFD(); {
	case fd && m.GetFd() == 0:
		o.fail(fmt.Errorf("%w: share of kind %q cites no descriptor", framework.ErrInvalid, s.Kind))
	case !fd && m.GetFd() != 0:
		o.fail(fmt.Errorf("%w: share of kind %q cites a descriptor", framework.ErrInvalid, s.Kind))
	case fd && o.err == nil:
		file, err := o.fds.Claim(o.ctx, o.call, m.GetFd())
		if err != nil {
			o.fail(err)
			break
		}
		o.files = append(o.files, file)
		s.FD = file
	}
	return s
}

func (o *opener) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *opener) sharesOf(in []*pb.Share) []framework.Share {
	if len(in) == 0 {
		return nil
	}
	out := make([]framework.Share, len(in))
	for i, m := range in {
		out[i] = o.share(m)
	}
	return out
}

func (o *opener) parcel(m *pb.Parcel) framework.Parcel {
	return framework.Parcel{Data: m.GetData(), Shares: o.sharesOf(m.GetShares())}
}

// keep hands the descriptors over to the owner of the shares.
func (o *opener) keep() { o.files = nil }

// close closes the descriptors that were not handed over.
func (o *opener) close() {
	for _, f := range o.files {
		f.Close()
	}
	o.files = nil
}
