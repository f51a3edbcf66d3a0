package wire

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

// FailureKey is the key of the trailing metadata that carries a pb.Failure.
const FailureKey = "mscclpp-failure-bin"

// codeOf is the table of status codes, by class. A plugin that sends no Failure is
// understood by its code alone. Unavailable, Internal and Unimplemented are what
// gRPC itself says of a server that is gone or that lacks the call, so no class
// but the fitting one uses them.
var codeOf = map[error]codes.Code{
	framework.ErrUnavailable: codes.FailedPrecondition,
	framework.ErrUnsupported: codes.Unimplemented,
	framework.ErrInvalid:     codes.InvalidArgument,
	framework.ErrPeer:        codes.Aborted,
	framework.ErrClosed:      codes.NotFound,
	framework.ErrPlugin:      codes.Unavailable,
}

// failureOf takes err apart. It is nil for nil.
func failureOf(err error) *pb.Failure {
	if err == nil {
		return nil
	}
	f := &pb.Failure{}
	for i, class := range framework.Classes {
		if errors.Is(err, class) {
			f.Class = pb.ErrorClass(i + 1)
			break
		}
	}
	// Blames that are the whole of the error travel as fields and are printed
	// again on the other side; what lies below is text.
	for {
		e, ok := err.(*framework.Error) //nolint:errorlint // the outermost error only
		if !ok || e.Err == nil {
			break
		}
		f.Blames = append(f.Blames, blameOf(e))
		err = e.Err
	}
	f.Message = strings.ToValidUTF8(err.Error(), "?")
	var option *framework.OptionError
	if errors.As(err, &option) {
		f.Option = strings.ToValidUTF8(option.Key, "?")
	}
	var inner *framework.Error
	if errors.As(err, &inner) {
		f.Inner = blameOf(inner)
		f.Inner.Peer = i32(framework.PeerOf(err))
	}
	return f
}

func blameOf(e *framework.Error) *pb.Blame {
	return &pb.Blame{Op: e.Op, Transport: e.Transport, Peer: i32(e.Peer)}
}

// errorOf is the inverse of failureOf.
func errorOf(f *pb.Failure) error {
	if f == nil {
		return nil
	}
	r := &remote{text: f.GetMessage()}
	if c := int(f.GetClass()); c >= 1 && c <= len(framework.Classes) {
		r.causes = append(r.causes, framework.Classes[c-1])
	}
	if b := f.GetInner(); b != nil {
		r.causes = append(r.causes, &framework.Error{Op: b.GetOp(), Transport: b.GetTransport(), Peer: int(b.GetPeer())})
	}
	var err error = r
	if f.GetOption() != "" {
		err = &framework.OptionError{Key: f.GetOption(), Err: r}
	}
	for i := len(f.GetBlames()) - 1; i >= 0; i-- {
		b := f.GetBlames()[i]
		err = &framework.Error{Op: b.GetOp(), Transport: b.GetTransport(), Peer: int(b.GetPeer()), Err: err}
	}
	return err
}

// remote is an error whose text was made in another process.
type remote struct {
	text   string
	causes []error
}

func (r *remote) Error() string   { return r.text }
func (r *remote) Unwrap() []error { return r.causes }

// statusOf is what a server's handler returns for err, after the Failure was set as
// trailer by the caller.
func statusOf(err error) error {
	code := codes.Unknown
	switch class := framework.Class(err); {
	case class != nil:
		code = codeOf[class]
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, strings.ToValidUTF8(err.Error(), "?"))
}

// trailerOf is the trailing metadata for err.
func trailerOf(err error) metadata.MD {
	data, merr := proto.Marshal(failureOf(err))
	if merr != nil {
		return nil // the status alone still tells the class
	}
	return metadata.Pairs(FailureKey, string(data))
}

// errorFrom is the error behind a failed call, from its trailer if there is one,
// else from its status.
func errorFrom(err error, trailer metadata.MD) error {
	if values := trailer.Get(FailureKey); len(values) > 0 {
		f := &pb.Failure{}
		if proto.Unmarshal([]byte(values[0]), f) == nil {
			return withContext(errorOf(f), err)
		}
	}
	s := status.Convert(err)
	r := &remote{text: s.Message()}
	for class, code := range codeOf {
		if s.Code() == code {
			r.causes = append(r.causes, class)
		}
	}
	return withContext(r, err)
}

// withContext keeps errors.Is for the two errors of package context, which are no
// class: they are the caller's own doing.
func withContext(err, call error) error {
	switch status.Code(call) {
	case codes.DeadlineExceeded:
		return join(err, context.DeadlineExceeded)
	case codes.Canceled:
		return join(err, context.Canceled)
	}
	return err
}

// join adds a cause to err without changing its text.
func join(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	var e *framework.Error
	if errors.As(err, &e) && err == error(e) { //nolint:errorlint // rebuilt from the outside in
		return &framework.Error{Op: e.Op, Transport: e.Transport, Peer: e.Peer, Err: join(e.Err, cause)}
	}
	return &remote{text: err.Error(), causes: []error{err, cause}}
}
