package exec_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// toItself are all-gathers of 2 ranks in which each rank brings its part to its own output over a port to itself. With ports they reach the other
// rank by a port, too, and else by a memory channel.
func toItself(t *testing.T, ports bool) (plans []*schema.Plan) {
	t.Helper()
	for _, how := range []string{"put", "puts", "signal", "flush"} {
		p := dsl.New(dsl.AllGather(2, 2, false), dsl.Options{Name: "itself-" + how})
		for r := range 2 {
			in, own, theirs := p.Input(r), p.Output(r), p.Output(1-r)
			self, memory := p.PortChannel(r, r), p.MemoryChannel(1-r, r)
			memory.Signal(0) // outputs may be written
			memory.Wait(0)
			switch how {
			case "put":
				self.Put(own.Slice(2*r, 2*r+2), in.Slice(0, 2), 0)
				self.Signal(0)
				self.Flush(0)
				self.Wait(0)
			case "puts": // the second one reads the result of the first
				scratch := p.Scratch(r, 2)
				self.Put(scratch.Slice(0, 2), in.Slice(0, 2), 0)
				self.PutWithSignal(own.Slice(2*r, 2*r+2), scratch.Slice(0, 2), 0)
				self.Flush(0)
				self.Wait(0)
			case "signal": // another block waits
				self.PutWithSignal(own.Slice(2*r, 2*r+2), in.Slice(0, 2), 0)
				self.Wait(1)
			case "flush":
				self.PutWithSignalAndFlush(own.Slice(2*r, 2*r+2), in.Slice(0, 2), 0)
				self.Wait(0)
			}
			if ports {
				port := p.PortChannel(1-r, r)
				port.PutWithSignal(theirs.Slice(2*r, 2*r+2), in.Slice(0, 2), 0)
				port.Flush(0)
				port.Wait(0)
			} else {
				memory.Put(theirs.Slice(2*r, 2*r+2), in.Slice(0, 2), dsl.Block(0))
				memory.Signal(0)
				memory.Wait(0)
			}
		}
		plans = append(plans, whole(t, p))
	}
	if ports { // one operation for both
		p := dsl.New(dsl.AllGather(2, 1, false), dsl.Options{Name: "itself-both"})
		for r := range 2 {
			to := []dsl.PortChannel{p.PortChannel(1-r, r), p.PortChannel(r, r)}
			memory := p.MemoryChannel(1-r, r)
			memory.Signal(0)
			memory.Wait(0)
			for _, c := range to {
				c.Put(p.Output(c.Dst()).At(r), p.Input(r).At(0), 0)
			}
			for _, f := range []func(dsl.PortChannel, int, ...dsl.Sync){dsl.PortChannel.Signal, dsl.PortChannel.Flush, dsl.PortChannel.Wait} {
				for _, c := range to {
					f(c, 0)
				}
			}
		}
		plan := whole(t, p)
		if !slices.ContainsFunc(plan.GPUs[0].Blocks[0].Ops, func(o schema.Op) bool { return o.Name == schema.Put && len(o.ChannelIDs) == 2 }) {
			t.Fatal("no operation has both ports")
		}
		plans = append(plans, plan)
	}
	for _, read := range []bool{false, true} {
		p := dsl.New(dsl.AllGather(2, 1, false), dsl.Options{Name: fmt.Sprintf("itself-packets-%v", read), Protocol: schema.LL, DoubleScratch: true})
		s := []dsl.Buffer{p.Scratch(0, 3), p.Scratch(1, 3)}
		for r := range 2 {
			self := p.PortChannel(r, r)
			p.Rank(r).CopyPackets(s[r].At(0), p.Input(r).At(0), dsl.Block(0))
			if read {
				self.ReadPutPackets(s[r].At(1), s[r].At(0), dsl.Block(0))
			} else { // a port sends what is there
				p.Rank(r).Barrier(0)
				self.PutPackets(s[r].At(1), s[r].At(0), 0)
			}
			if ports {
				p.PortChannel(1-r, r).ReadPutPackets(s[1-r].At(2), s[r].At(0), dsl.Block(0))
			} else {
				p.MemoryChannel(1-r, r).PutPackets(s[1-r].At(2), p.Input(r).At(0), dsl.Block(0))
			}
			p.Rank(r).UnpackPackets(p.Output(r).At(r), s[r].At(1), dsl.Block(0))
			p.Rank(r).UnpackPackets(p.Output(r).At(1-r), s[r].At(2), dsl.Block(0))
		}
		plans = append(plans, whole(t, p))
	}
	return plans
}

// whole compiles a plan that is right.
func whole(t *testing.T, p *dsl.Program) *schema.Plan {
	t.Helper()
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if x := verify.Plan(plan); x.Verdict != verify.Right {
		t.Fatalf("%s: %s: %s", plan.Name, x.Verdict, x.Reason)
	}
	return plan
}

// Port channels of ranks to themselves carry what ports do: the check calls such plans right, and they give their results.
func TestPortsToItself(t *testing.T) {
	for _, ports := range []bool{false, true} {
		for _, p := range toItself(t, ports) {
			t.Run(fmt.Sprintf("%s, others by ports: %v", p.Name, ports), func(t *testing.T) { runAll(t, p, entry{result: "AG"}) })
		}
	}
}

func TestPortsToItselfOnAnEmulatedGPU(t *testing.T) {
	for _, how := range []string{"images", "ptx"} {
		t.Run(how, func(t *testing.T) {
			folder := t.TempDir()
			if how == "images" {
				folder = emulated.Images(t, emulated.Source{Spec: "../image/kernels.json", Types: []string{"i32"}})
			}
			t.Setenv(emulated.EnvImages, folder)
			t.Setenv(emulated.EnvRun, map[string]string{"ptx": "ptx"}[how])
			plans := append(toItself(t, false), toItself(t, true)...)
			ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
				stream, err := dev.NewStream()
				if err != nil {
					return err
				}
				for _, p := range plans {
					for _, exchanged := range []bool{false, true} {
						if err := calls(ctx, c, dev, p, exec.Call{Stream: stream}, exchanged, 4096); err != nil {
							return fmt.Errorf("%s, buffers that ranks reach: %v: %w", p.Name, exchanged, err)
						}
					}
				}
				return errors.Join(c.Settle(ctx, stream), dev.CloseStream(stream))
			})
		})
	}
}
