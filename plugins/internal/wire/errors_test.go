package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mscclpp-go/mscclpp/framework"
)

// cross takes an error over the boundary.
func cross(err error) error { return errorFrom(statusOf(err), trailerOf(err)) }

func TestErrorsCross(t *testing.T) {
	at := func(op, transport string, peer int, err error) error {
		return &framework.Error{Op: op, Transport: transport, Peer: peer, Err: err}
	}
	cases := []error{
		at("connect", "ib-host", 3, fmt.Errorf("no usable device: %w", framework.ErrUnavailable)),
		at("attach", "shm", framework.NoPeer, at("map", "", 5, framework.ErrPeer)),
		fmt.Errorf("three attempts: %w", at("dial", "tcp", 7, framework.ErrPeer)),
		errors.New("no class at all"),
		at("listen", "shm", framework.NoPeer, errors.New("no class inside")),
		fmt.Errorf("invalid bytes \xff: %w", framework.ErrInvalid),
		at("wait", "shm", 2, fmt.Errorf("too slow: %w", context.DeadlineExceeded)),
		context.Canceled,
	}
	for _, class := range framework.Classes {
		cases = append(cases, class, at("probe", "x", 0, class))
	}
	for _, err := range cases {
		got := cross(err)
		if want := framework.Class(err); framework.Class(got) != want {
			t.Errorf("%v: class %v, expected %v", err, framework.Class(got), want)
		}
		for _, class := range framework.Classes {
			if errors.Is(got, class) != errors.Is(err, class) {
				t.Errorf("%v: errors.Is %v became %v", err, class, errors.Is(got, class))
			}
		}
		if framework.PeerOf(got) != framework.PeerOf(err) {
			t.Errorf("%v: peer %d, expected %d", err, framework.PeerOf(got), framework.PeerOf(err))
		}
		for _, c := range []error{context.Canceled, context.DeadlineExceeded} {
			if errors.Is(got, c) != errors.Is(err, c) {
				t.Errorf("%v: errors.Is %v became %v", err, c, errors.Is(got, c))
			}
		}
		if err.Error() != "invalid bytes \xff: invalid" && got.Error() != err.Error() {
			t.Errorf("text %q, expected %q", got, err)
		}
	}
	var option *framework.OptionError
	refused := at("configure", "shm", framework.NoPeer, framework.BadOption("deep.b", "deep.b 7: expected less"))
	if got := cross(refused); !errors.As(got, &option) || option.Key != "deep.b" || got.Error() != refused.Error() || !errors.Is(got, framework.ErrInvalid) {
		t.Errorf("%v: expected the option to cross", got)
	}
	var e *framework.Error
	if got := cross(cases[0]); !errors.As(got, &e) || e.Op != "connect" || e.Transport != "ib-host" || e.Peer != 3 {
		t.Errorf("fields: got %+v", e)
	}
}

// TestStatusAlone is a plugin that sends no Failure.
func TestStatusAlone(t *testing.T) {
	seen := map[codes.Code]bool{}
	for _, class := range framework.Classes {
		code := codeOf[class]
		if seen[code] || code == codes.OK {
			t.Errorf("%v has code %v, which another class has", class, code)
		}
		seen[code] = true
		for _, trailer := range []metadata.MD{nil, metadata.Pairs(FailureKey, "\xff\xff not a message")} {
			got := errorFrom(status.Error(code, "text"), trailer)
			if framework.Class(got) != class || got.Error() != "text" {
				t.Errorf("code %v: got %v of class %v, expected %v", code, got, framework.Class(got), class)
			}
		}
	}
	if got := errorFrom(status.Error(codes.Unknown, "x"), nil); framework.Class(got) != nil {
		t.Errorf("unknown code: class %v, expected none", framework.Class(got))
	}
}

func TestFailureOfNothing(t *testing.T) {
	if failureOf(nil) != nil || errorOf(nil) != nil {
		t.Error("no error became one")
	}
}
