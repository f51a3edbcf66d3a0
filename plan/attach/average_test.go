package attach_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/attach"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// Averages of plans have the bits of the library's own: sums are divided once, before they are rounded. Sums of the same plan come
// before and after, so that tables that were uploaded serve both.
func TestAverages(t *testing.T) {
	const n = 3
	shape := library.Shape{Ranks: n, Blocks: 2}
	in := shape
	in.InPlace = true
	var plans []*schema.Plan
	for i, name := range []string{"allreduce-1pa", "allreduce-2pa-packets", "allreduce-2pa-chunks", "allreduce-2pa-ports", "allreduce-pipelined", "allreduce-2pa-switch"} {
		s := shape
		if strings.HasSuffix(name, "switch") {
			s = in
		}
		p := compile(t, name, s)
		p.Name = fmt.Sprintf("plan%d", i)
		plans = append(plans, p)
	}
	for _, packet := range []exec.Packet{exec.LL8, exec.LL16} {
		job(t, n, func(ctx context.Context, c *collectives.Comm) error {
			for _, p := range plans {
				if _, err := (attach.Options{Packet: packet}).To(ctx, c, p); err != nil {
					return err
				}
			}
			for dtype := range kernel.DataType(kernel.DataTypes) {
				count := 1568 / dtype.Size() * n
				// No order of addition rounds these numbers.
				inputs := collectivetest.Trial{Kind: collectives.AllReduce, Type: dtype, Count: count}.Inputs(n, uint64(dtype))
				for _, op := range []kernel.Op{kernel.Sum, kernel.Avg, kernel.Sum} {
					var want []byte
					for _, name := range []string{"allpair_ll8", "", "plan0", "plan1", "plan2", "plan3", "plan4", "plan5"} {
						data := slices.Clone(inputs[c.Rank()])
						p := unsafe.Pointer(&data[0])
						o := &collectives.CallOptions{Algorithm: name}
						if err := c.AllReduce(p, p, count, dtype, op, o); err != nil {
							return fmt.Errorf("%v %v by %q: %w", op, dtype, name, err)
						}
						if want == nil {
							want = data
						}
						if !bytes.Equal(data, want) {
							t.Errorf("rank %d: %v of %v by %q, packets of %d: other bits than by the library's algorithm", c.Rank(), op, dtype, name, packet)
						}
					}
				}
			}
			return nil
		})
	}
}

// partly is an all-reduce of three ranks in which operations give results in one chunk, and parts of them in the next one.
func partly(t *testing.T) *schema.Plan {
	const n = 3
	p := dsl.New(dsl.AllReduce(n, 1, false), dsl.Options{Name: "partly", NoFusion: true})
	for r := range n {
		a, b := (r+1)%n, (r+2)%n
		next, last := p.MemoryChannel(a, r), p.MemoryChannel(b, r)
		both := []dsl.MemoryChannel{next, last}
		meet := func(before, after dsl.Sync) {
			for _, m := range both {
				m.Signal(0, before)
			}
			for _, m := range both {
				m.Wait(0, after)
			}
		}
		meet(dsl.Relaxed, dsl.Relaxed|dsl.After)
		out := p.Output(r)
		p.Rank(r).Copy(out.All(), p.Input(r).All(), dsl.Block(0))
		add := func(m dsl.MemoryChannel, peer, start, stop int) {
			part := out.Slice(start, stop)
			m.Reduce(part, part, []dsl.Chunk{p.Input(peer).Slice(start, stop)}, dsl.Block(0))
		}
		add(next, a, 0, 1)
		add(last, b, 0, 2)
		add(next, a, 1, 3)
		add(last, b, 2, 3)
		meet(dsl.Before, dsl.After)
	}
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if got := verify.Plan(plan); got.Verdict != verify.Right {
		t.Fatalf("%s: %s", got.Verdict, got.Reason)
	}
	return plan
}

// A plan whose operations give a result in one place and a part of one in another performs sums, and no averages.
func TestNoAverages(t *testing.T) {
	p := partly(t)
	job(t, 3, func(ctx context.Context, c *collectives.Comm) error {
		if _, err := attach.To(ctx, c, p); err != nil {
			return err
		}
		data := make([]byte, 192)
		for op, want := range map[kernel.Op]error{kernel.Sum: nil, kernel.Avg: framework.ErrUnsupported} {
			err := c.AllReduce(unsafe.Pointer(&data[0]), unsafe.Pointer(&data[0]), len(data), kernel.Uint8, op, &collectives.CallOptions{Algorithm: p.Name})
			if !errors.Is(err, want) {
				t.Errorf("%v: %v: expected %v", op, err, want)
			}
		}
		e, err := exec.New(ctx, c.Communicator(), p)
		if err != nil {
			return err
		}
		defer e.Close()
		if err := e.Averages(); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "parts of them") {
			t.Errorf("%v: expected that sums are complete in some places only", err)
		}
		return nil
	})
}
