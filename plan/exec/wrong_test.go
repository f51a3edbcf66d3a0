package exec_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

func compile(t *testing.T, name string, s library.Shape) *schema.Plan {
	t.Helper()
	p, err := library.Compile(name, s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// refuses demands an error of a class with words in it.
func refuses(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%v: expected the class %v", err, class)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v: expected %q", err, w)
		}
	}
}

// Calls that a plan is not for are refused with the reason, and the next call works.
func TestCallsThatAreRefused(t *testing.T) {
	p := compile(t, "allreduce-1pa", library.Shape{Ranks: 2, Blocks: 1, MinSize: 64, MaxSize: 4096})
	other := compile(t, "allreduce-1pa", library.Shape{Ranks: 3})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		_, err := exec.New(ctx, c, other)
		refuses(t, err, framework.ErrInvalid, "is for 3 ranks: expected one for 2")
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		buffer := make([]byte, 8192)
		call := func(change func(*exec.Call)) error {
			x := exec.Call{Input: pointer(buffer), Output: pointer(buffer), InputBytes: 1024, OutputBytes: 1024, Type: kernel.Int32}
			change(&x)
			return e.Execute(&x)
		}
		for _, x := range []struct {
			change func(*exec.Call)
			words  []string
		}{
			{func(x *exec.Call) { x.InputBytes, x.OutputBytes = 1000, 1000 }, []string{"of 1000 bytes: expected a multiple of 32, as 992 or 1024"}},
			{func(x *exec.Call) { x.InputBytes, x.OutputBytes = 12, 12 }, []string{"expected a multiple of 32, as 32"}},
			{func(x *exec.Call) { x.InputBytes, x.OutputBytes = 32, 32 }, []string{"a message of 32 bytes: expected 64 to 4096"}},
			{func(x *exec.Call) { x.InputBytes, x.OutputBytes = 8192, 8192 }, []string{"a message of 8192 bytes: expected 64 to 4096"}},
			{func(x *exec.Call) { x.OutputBytes = 2048 }, []string{"expected chunks of one size"}},
			{func(x *exec.Call) { x.Packet = 12 }, []string{"packets of 12 bytes: expected 8 or 16"}},
			{func(x *exec.Call) { x.Op = kernel.PreMulSum }, []string{"expected sum, prod, min, max or avg"}},
			{func(x *exec.Call) { x.Type = 99 }, []string{"element type 99: expected 0 to 12"}},
			{func(x *exec.Call) { x.Input = nil }, []string{"no buffer was given"}},
		} {
			refuses(t, call(x.change), framework.ErrInvalid, append(x.words, p.Name)...)
		}
		if err := call(func(*exec.Call) {}); err != nil {
			return err
		}
		if err := e.Close(); err != nil {
			return err
		}
		refuses(t, call(func(*exec.Call) {}), framework.ErrClosed, "the executor was closed")
		return e.Close()
	})
}

// Memory that cannot be had is an error that says how much of it, and the next call works.
func TestMemoryThatCannotBeHad(t *testing.T) {
	p := compile(t, "allreduce-1pa", library.Shape{Ranks: 2})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		defer e.Close()
		buffer := make([]byte, 4096)
		call := func(n uint64) error {
			return e.Execute(&exec.Call{Input: pointer(buffer), Output: pointer(buffer), InputBytes: n, OutputBytes: n, Type: kernel.Int32})
		}
		for _, n := range []uint64{1 << 45, 1 << 62} {
			refuses(t, call(n), framework.ErrInvalid, p.Name, "chunks of", "2 of them scratch memory", "expected at most 70368744177664 bytes")
		}
		return call(4096)
	})
}

// Ranks with different plans, or calls, are named on all of them.
func TestRanksThatDiffer(t *testing.T) {
	p, q := compile(t, "allreduce-1pa", library.Shape{Ranks: 2}), compile(t, "allreduce-1pa", library.Shape{Ranks: 2, Blocks: 2})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		_, err := exec.New(ctx, c, []*schema.Plan{p, q}[c.Rank()])
		refuses(t, err, framework.ErrInvalid, "rank", "its plan is not plan "+[]*schema.Plan{p, q}[c.Rank()].Name)
		return nil
	})
	for _, first := range []bool{true, false} { // also where the memory for the sizes is there already
		job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
			e, err := exec.New(ctx, c, p)
			if err != nil {
				return err
			}
			buffer := make([]byte, 8192)
			call := func(n uint64, op kernel.Op) error {
				return e.Execute(&exec.Call{Input: pointer(buffer), Output: pointer(buffer), InputBytes: n, OutputBytes: n, Type: kernel.Int32, Op: op})
			}
			if first {
				refuses(t, call(uint64(1024*(1+c.Rank())), kernel.Sum), framework.ErrInvalid, "rank", "its buffers have chunks of another size")
				return nil
			}
			if err := call(8192, kernel.Sum); err != nil {
				return err
			}
			err = call(uint64(1024*(1+c.Rank())), kernel.Sum)
			if err == nil {
				t.Error("two ranks performed different calls together")
			}
			if err != nil && !strings.Contains(err.Error(), "it has begun a call with other sizes, type, reduction or packets") { // one finds out, and tells the other
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
			return nil
		})
	}
}

// A plan that waits forever ends with the deadline, and the error names the operation; or when another rank gives up.
func TestPlansThatWait(t *testing.T) {
	p, err := schema.ReadFile("../verify/testdata/hang/allgather_both_wait.json")
	if err != nil {
		t.Fatal(err)
	}
	run := func(c *comm.Communicator, e *exec.Executor) error {
		in, out := make([]byte, 1024), make([]byte, 2048)
		return e.Execute(&exec.Call{Input: pointer(in), Output: pointer(out), InputBytes: 1024, OutputBytes: 2048})
	}
	jobWith(t, 2, comm.Options{Deadline: uint64(50 * time.Millisecond)}, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		err = run(c, e)
		refuses(t, err, framework.ErrPeer, "no progress within 50ms", "plan "+p.Name, "block 0, operation", "(wait)")
		return nil
	})
	gone, made := errors.New("the program has changed its mind"), make(chan struct{})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error {
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			<-made // or rank 0 finds out before
			c.Abort(gone)
			return nil
		}
		close(made)
		refuses(t, run(c, e), framework.ErrPeer, "rank 1", gone.Error())
		return nil
	})
	job(t, 2, func(ctx context.Context, c *comm.Communicator) error { // closed by another goroutine
		e, err := exec.New(ctx, c, p)
		if err != nil {
			return err
		}
		ended := make(chan error)
		go func() { ended <- run(c, e) }()
		if c.Rank() == 0 {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			c.Abort(framework.ErrClosed) // the plan may not have begun
		}
		if err := <-ended; err == nil {
			t.Error("a plan that waits forever has ended")
		}
		return nil
	})
}
