package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework"
)

// Observer is notified of progress, on rank 0 only. Both functions may be nil.
type Observer struct {
	Starting func(n, of int, c Case)
	Failed   func(c Case, why string)
}

// patience bounds the wait for the other ranks' verdict on a case. A rank whose call
// failed at once waits here for ranks that may be stuck in theirs.
const patience = 30 * time.Second

// Run checks the cases in order. Every rank calls it with the same cases and gets
// the same counts. A case that fails in a way that all ranks survive is followed by
// the next; otherwise Run stops with an error, and the cases not run count as failed.
func Run(ctx context.Context, g bench.Group, cases []Case, v *bench.Verifier, o Observer) (passed, failed int, err error) {
	r := runner{g: g, v: v, windows: map[kind]bench.Window{}}
	if err := r.allocate(cases); err != nil {
		return 0, len(cases), fmt.Errorf("check: buffers: %w", err)
	}
	for i, c := range cases {
		if g.Rank() == 0 && o.Starting != nil {
			o.Starting(i, len(cases), c)
		}
		why, err := r.check(ctx, c)
		if err != nil || why != "" {
			failed++
			if g.Rank() == 0 && o.Failed != nil {
				o.Failed(c, why)
			}
		}
		if err != nil {
			return passed, failed + len(cases) - i - 1, fmt.Errorf("check %s: %w", c, err)
		}
		passed = i + 1 - failed
	}
	return passed, failed, nil
}

// kind of a window.
type kind struct{ shared, registered bool }

type runner struct {
	g       bench.Group
	v       *bench.Verifier
	windows map[kind]bench.Window
}

func (r *runner) allocate(cases []Case) error {
	room := Room(cases, r.g.Size())
	for _, c := range cases {
		k := kind{c.InPlace, c.Registered}
		if _, ok := r.windows[k]; ok {
			continue
		}
		w, err := bench.NewWindow(r.g, room, k.shared, k.registered)
		if err != nil {
			return err
		}
		r.windows[k] = w
	}
	return nil
}

// verdict is one rank's message to the others about a case.
type verdict struct {
	Wrong   int64
	Digests [2]uint32 // of the same call made twice
	Error   string    `json:",omitempty"`
	Fatal   bool      `json:",omitempty"` // nothing more can be run
}

// check runs one case twice and returns why it failed, "" if it did not. An error
// means that no further case can be run.
func (r *runner) check(ctx context.Context, c Case) (why string, err error) {
	call := c.call(r.g.Rank(), r.g.Size())
	w := r.windows[kind{c.InPlace, c.Registered}]
	w.Place(call, r.g.Rank(), c.Offset*c.Type.Size())
	mine, cause := r.verdict(call, w)
	wait, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("%w: the other ranks gave no verdict within %v", framework.ErrPeer, patience))
	defer cancel()
	all, err := r.exchange(wait, mine)
	if err != nil {
		return mine.Error, errors.Join(cause, err)
	}
	why = judge(c, all)
	for _, v := range all {
		if v.Fatal {
			if cause == nil {
				cause = errors.New(why)
			}
			return why, cause
		}
	}
	return why, nil
}

func (r *runner) verdict(call *bench.Call, w bench.Window) (verdict, error) {
	first, err := r.v.Verify(r.g, call, w)
	if err != nil {
		return failure(err), err
	}
	second, err := r.v.Repeat(r.g, call, w)
	if err != nil {
		return failure(err), err
	}
	return verdict{Wrong: first.Wrong + second.Wrong, Digests: [2]uint32{first.Digest, second.Digest}}, nil
}

// failure classifies an error: a refusal is every rank's, made before anything moved.
func failure(err error) verdict {
	refused := errors.Is(err, framework.ErrInvalid) || errors.Is(err, framework.ErrUnsupported)
	return verdict{Error: err.Error(), Fatal: !refused}
}

func (r *runner) exchange(ctx context.Context, mine verdict) ([]verdict, error) {
	data, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	parts, err := r.g.AllGather(ctx, data)
	if err != nil {
		return nil, fmt.Errorf("exchange of verdicts: %w", err)
	}
	all := make([]verdict, len(parts))
	for i, p := range parts {
		if err := json.Unmarshal(p, &all[i]); err != nil {
			return nil, fmt.Errorf("%w: verdict of rank %d: %w", framework.ErrPeer, i, err)
		}
	}
	return all, nil
}
