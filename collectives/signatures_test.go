package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// One of three ranks calls something else. All get an error that names each rank's call, nothing is
// written, and the communicator can go on.
func TestRanksDisagree(t *testing.T) {
	type call func(c *collectives.Comm, in, out []byte) error
	good := func(c *collectives.Comm, in, out []byte) error {
		return c.AllReduce(pointer(in), pointer(out), 100, kernel.Int32, kernel.Sum, nil)
	}
	for name, odd := range map[string]call{
		"101 i32 sum": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), 101, kernel.Int32, kernel.Sum, nil)
		},
		"of 0 i32": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), 0, kernel.Int32, kernel.Sum, nil)
		},
		"100 f32": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), 100, kernel.Float32, kernel.Sum, nil)
		},
		"100 i32 max": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), 100, kernel.Int32, kernel.Max, nil)
		},
		"100 i32 premulsum": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), 100, kernel.Int32, kernel.PreMulSum, &collectives.CallOptions{Scale: 1})
		},
		"by twophase_ll16": func(c *collectives.Comm, in, out []byte) error {
			return c.AllReduce(pointer(in), pointer(out), 100, kernel.Int32, kernel.Sum, &collectives.CallOptions{Algorithm: "twophase_ll16"})
		},
		"broadcast": func(c *collectives.Comm, in, out []byte) error {
			return c.Broadcast(pointer(in), pointer(out), 100, kernel.Int32, 1, nil)
		},
		"barrier": func(c *collectives.Comm, in, out []byte) error { return c.Barrier(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			job(t, 3, collectives.Options{Signatures: collectives.SignaturesAlways}, func(ctx context.Context, c *collectives.Comm) error {
				in, out := make([]byte, 404), make([]byte, 404)

				do := good
				if c.Rank() == 1 {
					do = odd
				}
				got := do(c, in, out)
				if !errors.Is(got, framework.ErrInvalid) || !strings.Contains(got.Error(), "rank 1: ") || !strings.Contains(got.Error(), name) {
					return fmt.Errorf("disagreement: %v", got)
				}
				if c.Rank() != 1 && framework.PeerOf(got) != 1 {
					return fmt.Errorf("blames rank %d, expected 1: %v", framework.PeerOf(got), got)
				}
				if err := good(c, in, out); err != nil {
					return fmt.Errorf("the next call: %w", err)
				}
				return nil
			})
		})
	}
}

// Without comparison before each call a disagreement shows as a stall, and the
// stall ends.
func TestStallIsExplained(t *testing.T) {
	job(t, 2, collectives.Options{Signatures: collectives.SignaturesStall}, func(ctx context.Context, c *collectives.Comm) error {
		in, out := make([]byte, 8<<20), make([]byte, 8<<20)
		count := 1 << 20
		if c.Rank() == 1 {
			count = 1 << 10 // by packets or in one chunk; rank 0 waits for more
		}
		err := c.AllReduce(pointer(in), pointer(out), count, kernel.Int64, kernel.Sum, &collectives.CallOptions{Algorithm: "twophase_chunk"})
		if c.Rank() == 1 && err == nil {
			<-c.Communicator().Done() // it had what it wanted; the other side complains
			return nil
		}
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "ranks disagree") {
			return fmt.Errorf("stall: %v", err)
		}
		return nil
	})
}

// Ranks that disagree on what does not make them wait, a type or a reduction, have
// moved data when the mistake shows. It is an error all the same, of every rank that
// had data of another, and never a result.
func TestWrongResultIsNoResult(t *testing.T) {
	for name, odd := range map[string]struct {
		count int
		dtype kernel.DataType
		op    kernel.Op
	}{
		"100 f32 sum": {100, kernel.Float32, kernel.Sum},
		"100 i32 max": {100, kernel.Int32, kernel.Max},
		"99 i32 sum":  {99, kernel.Int32, kernel.Sum},
	} {
		for _, algorithm := range []string{"allpair_chunk", "allpair_ll8", "twophase_ll16", "twophase_chunk", "ring"} {
			t.Run(name+"/"+algorithm, func(t *testing.T) {
				job(t, 3, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
					in, out := make([]byte, 400), make([]byte, 400)
					count, dtype, op := 100, kernel.Int32, kernel.Sum
					if c.Rank() == 2 {
						count, dtype, op = odd.count, odd.dtype, odd.op
					}
					o := &collectives.CallOptions{Algorithm: algorithm}
					err := c.AllReduce(pointer(in), pointer(out), count, dtype, op, o)
					if err == nil || !strings.Contains(err.Error(), "ranks disagree") ||
						!strings.Contains(err.Error(), "rank 2: allreduce of "+name+" by "+algorithm) || !strings.Contains(err.Error(), "100 i32 sum") {
						return fmt.Errorf("disagreement: %v", err)
					}
					if c.Rank() < 2 && framework.PeerOf(err) != 2 {
						return fmt.Errorf("blames rank %d, expected 2: %v", framework.PeerOf(err), err)
					}
					if err := c.Barrier(nil); err == nil {
						return errors.New("the communicator goes on after half a call")
					}
					return nil
				})
			})
		}
	}
}

// A rank that leaves the job in good order is not dead. A rank that waits for it in a call that it
// never makes ends all the same, and names it.
func TestDesertedCallEnds(t *testing.T) {
	for _, s := range []collectives.Signatures{collectives.SignaturesStall, collectives.SignaturesAlways} {
		t.Run(string(s), func(t *testing.T) {
			job(t, 3, collectives.Options{Signatures: s}, func(ctx context.Context, c *collectives.Comm) error {
				b := make([]byte, 1000)
				for range 2 {
					if err := c.AllReduce(pointer(b), pointer(b), 1000, kernel.Int8, kernel.Sum, nil); err != nil {
						return err
					}
				}
				if c.Rank() == 1 {
					return nil
				}
				err := c.AllReduce(pointer(b), pointer(b), 1000, kernel.Int8, kernel.Sum, nil)
				if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), "left the job after call 2") {
					return fmt.Errorf("a call that rank 1 never makes: %v", err)
				}
				return nil
			})
		})
	}
}

// The same for messages: a rank that sends or receives ends when all that it could have met have
// left. One of them that is still there may come, and is waited for.
func TestForsakenMessagesEnd(t *testing.T) {
	job(t, 4, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		b := make([]byte, 16)
		switch c.Rank() {
		case 0: // leaves at once
			return nil
		case 1: // comes when rank 3 has seen that 0 is gone
			if err := c.Recv(pointer(b), 8, kernel.Int8, 3, nil); err != nil {
				return err
			}
			return c.Send(pointer(b), 8, kernel.Int8, 2, nil)
		case 2: // has both, and gets what 1 sends before it gives up
			c.GroupStart()
			if err := errors.Join(c.Recv(pointer(b), 8, kernel.Int8, 0, nil), c.Recv(pointer(b[8:]), 8, kernel.Int8, 1, nil)); err != nil {
				return err
			}
			err := c.GroupEnd()
			if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 0 || !strings.Contains(err.Error(), "left the job") {
				return fmt.Errorf("a message that rank 0 never sends: %v", err)
			}
			return nil
		}
		if !c.Communicator().Departed(ctx, 0) {
			return errors.New("rank 0 has not left")
		}
		return c.Send(pointer(b), 8, kernel.Int8, 1, nil)
	})
}

// Several communicators of one process work at the same time, each with all ranks
// in this process.
func TestConcurrentCommunicators(t *testing.T) {
	var all sync.WaitGroup
	for k := range 3 {
		all.Go(func() {
			job(t, 2+k, collectives.Options{Scratch: 4 << 20}, func(ctx context.Context, c *collectives.Comm) error {
				b := buffers{make([]byte, 1<<20), make([]byte, 1<<20)}
				for i := range 30 {
					kinds := collectivetest.Kinds()
					x := trial{Kind: kinds[i%len(kinds)], Count: 1 + i*997%9000, Type: kernel.DataType(i % kernel.DataTypes), Root: i % c.Size()}
					if err := x.Run(b.of(c), uint64(k*100+i)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	all.Wait()
}

// An algorithm of the program's, built on other collectives, and a selector that
// picks it.
func TestOwnAlgorithmAndSelector(t *testing.T) {
	job(t, 3, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		used := 0
		mine := collectives.Algorithm{
			Collective: collectives.AllReduce, Name: "reduce_broadcast",
			Fits: func(r collectives.Request) bool { return r.Op != kernel.Avg },
			Run: func(c *collectives.Comm, call *collectives.Call) error {
				used++
				if err := c.Reduce(call.Input, call.Output, int(call.Count), call.Type, call.Op, 0, nil); err != nil {
					return err
				}
				return c.Broadcast(call.Output, call.Output, int(call.Count), call.Type, 0, nil)
			},
		}
		if err := c.RegisterAlgorithm(mine); err != nil {
			return err
		}
		if err := c.RegisterAlgorithm(mine); !errors.Is(err, framework.ErrInvalid) {
			return fmt.Errorf("registered twice: %v", err)
		}
		b := buffers{make([]byte, 1<<16), make([]byte, 1<<16)}
		x := trial{Kind: collectives.AllReduce, Algorithm: "reduce_broadcast", Count: 1000, Type: kernel.Int32}
		if err := x.Run(b.of(c), 1); err != nil || used != 1 {
			return fmt.Errorf("by name: %v, used %d times", err, used)
		}
		c.RegisterSelector(func(r *collectives.Request) string {
			if r.Collective == collectives.AllReduce && r.Bytes > 1000 {
				return "reduce_broadcast"
			}
			return ""
		})
		x.Algorithm = ""
		if err := x.Run(b.of(c), 2); err != nil || used != 2 {
			return fmt.Errorf("by selector: %v, used %d times", err, used)
		}
		x.Count = 10
		if err := x.Run(b.of(c), 3); err != nil || used != 2 {
			return fmt.Errorf("selector left the choice: %v, used %d times", err, used)
		}
		x.Count, x.Op = 1000, kernel.Avg
		if err := x.Run(b.of(c), 3); !errors.Is(err, framework.ErrUnsupported) {
			return fmt.Errorf("algorithm that does not fit: %v", err)
		}
		return nil
	})
}

// The caller's mistakes are errors that say what was expected.
func TestInvalidCalls(t *testing.T) {
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		b := make([]byte, 64)
		p := pointer(b)
		for text, err := range map[string]error{
			"at least 0":      c.AllReduce(p, p, -1, kernel.Int8, kernel.Sum, nil),
			"no such element": c.AllReduce(p, p, 1, kernel.DataTypes, kernel.Sum, nil),
			"no such reduc":   c.AllReduce(p, p, 1, kernel.Int8, kernel.Ops, nil),
			"0 to 1":          c.Broadcast(p, p, 1, kernel.Int8, 2, nil),
			"too many bytes":  c.AllGather(p, p, 1<<62, kernel.Float64, nil),
			"is nil":          c.AllReduce(nil, p, 1, kernel.Int8, kernel.Sum, nil),
			"expected one of": c.AllReduce(p, p, 1, kernel.Int8, kernel.Sum, &collectives.CallOptions{Algorithm: "best"}),
			"registered":      c.AllReduce(p, p, 1, kernel.Int8, kernel.Sum, &collectives.CallOptions{Algorithm: "zerocopy"}),
			"peer 2":          c.Send(p, 1, kernel.Int8, 2, nil),
			"count -1":        c.Recv(p, -1, kernel.Int8, 1, nil),
			"root -1":         c.Gather(p, p, 1, kernel.Int8, -1, nil),
			"one for each":    c.AllToAllV(p, []int{1}, []int{0}, p, []int{1}, []int{0}, kernel.Int8, nil),
		} {
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), text) {
				return fmt.Errorf("expected an error with %q, got %v", text, err)
			}
		}
		if err := c.AllReduce(nil, nil, 0, kernel.Int8, kernel.Sum, nil); err != nil {
			return fmt.Errorf("nothing to reduce: %v", err)
		}
		if err := c.Close(); err != nil {
			return err
		}
		if err := c.Barrier(nil); !errors.Is(err, framework.ErrClosed) {
			return fmt.Errorf("after close: %v", err)
		}
		return nil
	})
}

// A call that waits for a rank that never comes ends when the communicator does.
func TestAbortEndsACall(t *testing.T) {
	cause := errors.New("enough")
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		err := c.Barrier(nil) // both are here
		if c.Rank() == 1 {
			c.Communicator().Abort(cause)
			return err
		}
		b := make([]byte, 1<<20)
		for range 2 { // the second is refused at once
			if err := c.AllReduce(pointer(b), pointer(b), 1<<20, kernel.Int8, kernel.Sum, nil); err == nil {
				return errors.New("the call succeeded without its peer")
			}
		}
		return nil
	})
}

// Ranks that pass buffers of different exchanges get an error; offsets into other
// memory would have been wrong data.
func TestBuffersOfDifferentExchanges(t *testing.T) {
	job(t, 3, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		var parts [2][]byte
		for i := range parts {
			m, err := c.Communicator().Alloc(1 << 16)
			if err != nil {
				return err
			}
			defer m.Close()
			s, err := c.Communicator().Exchange(ctx, m)
			if err != nil {
				return err
			}
			defer s.Close()
			parts[i] = unsafe.Slice((*byte)(address(m.Addr())), m.Bytes())
		}
		o := &collectives.CallOptions{Algorithm: "zerocopy"}
		in := parts[0]
		if c.Rank() == 2 {
			in = parts[1]
		}
		err := c.AllGather(pointer(in), pointer(parts[0][32768:]), 100, kernel.Int8, o)
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "registered memory") {
			return fmt.Errorf("rank %d: %v", c.Rank(), err)
		}
		if c.Rank() != 2 && framework.PeerOf(err) != 2 {
			return fmt.Errorf("blames rank %d, expected 2", framework.PeerOf(err))
		}
		if err := c.AllGather(pointer(parts[0]), pointer(parts[1]), 100, kernel.Int8, o); err != nil {
			return fmt.Errorf("the next call: %w", err)
		}
		return c.Communicator().Barrier(ctx)
	})
}
