package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/inference"
	"github.com/mscclpp-go/mscclpp/inference/inferencetest"
	"github.com/mscclpp-go/mscclpp/inference/moe"
	"github.com/mscclpp-go/mscclpp/inference/moe/moetest"
)

// family is a kind of operators for inference, ready to be checked.
type family struct {
	trials int
	bytes  int                                                // that a trial takes at most
	call   func(n int, m viewed) (sum uint64, why, err error) // why: the result is wrong; sum: the same on all ranks
	close  func() error
}

// families make them. Where ranks do not share memory, or have no kernels for them, there is nothing to check.
var families = map[string]func(ctx context.Context, g *group, large bool) (*family, error){"operators for inference": norms, "experts": experts}

// operators checks those for inference against float64, large calls too if wanted, and returns how many calls were right and wrong.
func operators(ctx context.Context, g *group, large bool, failed func(why string)) (right, wrong int, err error) {
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f, err := families[name](ctx, g, large)
		if errors.Is(err, framework.ErrUnavailable) || errors.Is(err, framework.ErrUnsupported) {
			g.job.World.Log().Info(name+" are not checked", "because", err)
			continue
		}
		if err != nil {
			return right, wrong, err
		}
		r, w, err := f.check(ctx, g, failed)
		right, wrong = right+r, wrong+w
		if err = errors.Join(err, f.close()); err != nil {
			return right, wrong, err
		}
	}
	return right, wrong, nil
}

func (f *family) check(ctx context.Context, g *group, failed func(why string)) (right, wrong int, err error) {
	m, err := g.Alloc(int64(f.bytes), false)
	if err != nil {
		return 0, 0, err
	}
	for n := range f.trials {
		sum, why, err := f.call(n, viewed{m})
		if err != nil {
			return right, wrong, err
		}
		ok, err := g.agreed(ctx, sum, why)
		if err != nil {
			return right, wrong, err
		}
		if ok {
			right++
			continue
		}
		wrong++
		if why != nil {
			failed(why.Error())
		}
	}
	return right, wrong, nil
}

// norms are all-reduce with residual, norm and quantization.
func norms(ctx context.Context, g *group, large bool) (*family, error) {
	w, err := inference.New(ctx, g.job.World, inference.Options{})
	if err != nil {
		return nil, err
	}
	trials := inferencetest.Trials()
	if large {
		trials = append(trials, inferencetest.LargeTrials()...)
	}
	f := &family{trials: len(trials), close: w.Close}
	for _, t := range trials {
		f.bytes = max(f.bytes, t.Bytes())
	}
	f.call = func(n int, m viewed) (uint64, error, error) { return g.operate(w, trials[n], m, uint64(n)) }
	return f, nil
}

// experts are dispatch and combine.
func experts(ctx context.Context, g *group, _ bool) (*family, error) {
	b, err := moe.New(ctx, g.job.World, moetest.Options())
	if err != nil {
		return nil, err
	}
	f := &family{trials: len(moetest.Trials()), close: b.Close}
	runs := make([]moetest.Run, f.trials)
	for i, t := range moetest.Trials() {
		runs[i] = moetest.Run{Trial: t, Rank: g.Rank(), Ranks: g.Size(), Seed: uint64(i), Handle: b.HandleBytes()}
		f.bytes = max(f.bytes, runs[i].Bytes())
	}
	f.call = func(n int, m viewed) (uint64, error, error) {
		r := runs[n]
		r.Memory = m
		why, err := g.route(b, r)
		return 0, why, err
	}
	return f, nil
}

// route makes the calls of a trial; why says that a result is wrong.
func (g *group) route(b *moe.Buffer, r moetest.Run) (why, err error) {
	dispatch, err := r.Dispatch()
	if err != nil {
		return nil, err
	}
	combine := r.Combine()
	if g.queue != nil {
		dispatch.Stream, combine.Stream = g.queue.stream, g.queue.stream
	}
	finished := func(err error) error {
		if err == nil && g.queue != nil {
			err = g.queue.Finish()
		}
		if err != nil {
			return fmt.Errorf("%v: %w", r.Trial, err)
		}
		return nil
	}
	if err := finished(b.Dispatch(dispatch)); err != nil {
		return nil, err
	}
	why = r.CheckDispatch()
	if err := finished(b.Combine(combine)); err != nil {
		return nil, err
	}
	return errors.Join(why, r.CheckCombine()), nil
}

// operate makes the call of a trial; why says that its result is wrong.
func (g *group) operate(w *inference.Workspace, t inferencetest.Trial, m viewed, seed uint64) (sum uint64, why, err error) {
	call, err := t.Call(m, g.Rank(), g.Size(), seed)
	if err != nil {
		return 0, nil, err
	}
	if g.queue != nil {
		call.Stream = g.queue.stream
	}
	if err := w.AllReduceNorm(call); err != nil {
		return 0, nil, fmt.Errorf("%v: %w", t, err)
	}
	if g.queue != nil {
		if err := g.queue.Finish(); err != nil {
			return 0, nil, fmt.Errorf("%v: %w", t, err)
		}
	}
	sum, why = t.Check(m, g.Rank(), g.Size(), seed)
	return sum, why, nil
}

// agreed reports whether the result is right on all ranks, and the same.
func (g *group) agreed(ctx context.Context, sum uint64, why error) (bool, error) {
	mine := binary.LittleEndian.AppendUint64(nil, sum)
	if why != nil {
		mine = nil
	}
	all, err := g.AllGather(ctx, mine)
	for _, theirs := range all {
		if len(theirs) == 0 || string(theirs) != string(all[0]) {
			return false, err
		}
	}
	return err == nil, err
}

// viewed is memory of a benchmark as trials take it.
type viewed struct{ bench.Memory }

func (v viewed) Pointer(at int) unsafe.Pointer { return unsafe.Add(v.Addr, at) }

func (v viewed) Write(p []byte, at int) error {
	copy(v.View[at:], p)
	if v.Push == nil {
		return nil
	}
	return v.Push(at, at+len(p))
}

func (v viewed) Read(p []byte, at int) error {
	if v.Pull != nil {
		if err := v.Pull(at, at+len(p)); err != nil {
			return err
		}
	}
	copy(p, v.View[at:])
	return nil
}
