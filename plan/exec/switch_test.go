package exec_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// Operations of switch channels go through a window of the switch, in the committed PTX. Each plan binds memory for its windows, which
// the log of the emulated driver shows.
func TestPlansThroughASwitch(t *testing.T) {
	t.Setenv(emulated.EnvImages, t.TempDir()) // none for processors
	t.Setenv(emulated.EnvRun, "ptx")
	log := filepath.Join(t.TempDir(), "multicast")
	t.Setenv("CUDA_EMULATED_MULTICAST_LOG", log)
	bound := 0
	for _, x := range switched(t) {
		t.Run(x.plan.Name, func(t *testing.T) {
			ranktest.OnEmulatedSwitch(t, len(x.plan.GPUs), func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
				return throughSwitch(ctx, c, dev, x)
			})
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			now := strings.Count(string(text), "cuMulticastBind")
			least := 2 * len(x.plan.GPUs) // to see whether there is a switch, and for the buffers
			if now-bound < least {
				t.Errorf("%d parts of memory were bound to windows: expected %d or more", now-bound, least)
			}
			bound = now
		})
	}
}

// Where one rank cannot bind its memory, all reach the memory of each member: at once, and when memory for the first call is made. The emulated
// driver of a process knows one list of faults.
func TestPlansWithoutTheirSwitch(t *testing.T) {
	const mark = "PLAN_WITHOUT_SWITCH"
	if os.Getenv(mark) != "" {
		x := switched(t)[0]
		ranktest.OnEmulatedSwitch(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
			return throughSwitch(ctx, c, dev, x)
		})
		return
	}
	emulated.Build(t)
	for fault, most := range map[string]int{"cuMulticastBindMem@1:401": 2, "cuMulticastBindMem@1+1:401": 1 << 10} { // and how many binds there are
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		log := filepath.Join(t.TempDir(), "multicast")
		c := osexec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), mark+"=1", emulated.EnvImages+"="+t.TempDir(), emulated.EnvRun+"=ptx", emulated.EnvFaults+"="+fault, "CUDA_EMULATED_MULTICAST_LOG="+log)
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%s: %v: expected results: %s", fault, err, out)
		}
		text, err := os.ReadFile(log)
		if n := strings.Count(string(text), "cuMulticastBind"); err != nil || n == 0 || n > most {
			t.Errorf("%s: %v: %d binds, expected 1 to %d", fault, err, n, most)
		}
	}
}

type switchedPlan struct {
	plan  *schema.Plan
	entry entry
}

// switched are plans with switch channels: of the library, of this repository, and of the collection where there is one.
func switched(t *testing.T) (list []switchedPlan) {
	for _, ranks := range []int{2, 3} {
		list = append(list, switchedPlan{compile(t, "allreduce-2pa-switch", library.Shape{Ranks: ranks, Blocks: 2, InPlace: true}), entry{result: "AR"}})
	}
	add := func(file, result string) {
		p, err := schema.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, switchedPlan{p, entry{file: file, result: result}})
	}
	add("../verify/testdata/right/allreduce_switch.json", "AR")
	index, err := os.ReadFile(filepath.Join(collection, "INDEX.md"))
	if err != nil {
		return list
	}
	for line := range strings.Lines(string(index)) {
		x, ok := row(line)
		if !ok {
			continue
		}
		p, err := schema.ReadFile(filepath.Join(collection, x.file))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.GPUs[0].Switches()) > 0 {
			list = append(list, switchedPlan{p, x})
		}
	}
	return list
}

// throughSwitch makes calls of one plan, on buffers that are exchanged and that are not.
func throughSwitch(ctx context.Context, c *comm.Communicator, dev *cuda.Device, x switchedPlan) error {
	e, err := exec.New(ctx, c, x.plan)
	if err != nil {
		return err
	}
	stream, err := dev.NewStream()
	if err != nil {
		return err
	}
	formats := []exec.Packet{exec.LL16}
	if x.plan.Protocol == schema.LL {
		formats = append(formats, exec.LL8)
	}
	sizes := chunks(x.plan)
	m, err := exchanged(ctx, c, x.plan)
	if err != nil {
		return err
	}
	seed := uint64(0)
	for _, chunk := range sizes[:min(2, len(sizes))] {
		for _, packet := range formats {
			for launch := range 2 {
				seed++
				if err := launchThrough(ctx, c, dev, e, stream, m, chunk, packet, x.entry, seed); err != nil {
					return fmt.Errorf("chunks of %d bytes, packets of %d, launch %d: %w", chunk, packet, launch, err)
				}
			}
		}
	}
	return errors.Join(dev.CloseStream(stream), e.Close(), m.Close())
}

func launchThrough(ctx context.Context, c *comm.Communicator, dev *cuda.Device, e *exec.Executor, stream device.Stream, m *comm.Memory, chunk int, packet exec.Packet, x entry, seed uint64) error {
	p, rank := e.Plan(), c.Rank()
	g := &p.GPUs[rank]
	in := make([][]byte, len(p.GPUs))
	for r := range in {
		in[r] = fill(p.GPUs[r].InputChunks*chunk, seed, r)
	}
	output, input := 0, g.OutputChunks*chunk
	switch x.result {
	case "AR":
		input = 0
	case "AG":
		input = rank * len(in[rank])
	}
	base := m.Addr()
	if err := dev.WriteAt(in[rank], base+uintptr(input)); err != nil {
		return err
	}
	memory := ranktest.Memory{Device: dev, Base: base}
	call := exec.Call{Input: memory.Pointer(input), Output: memory.Pointer(output), InputBytes: uint64(len(in[rank])), OutputBytes: uint64(g.OutputChunks * chunk),
		Type: kernel.Int32, Packet: packet, Stream: stream}
	if err := e.Execute(&call); err != nil {
		return err
	}
	if err := errors.Join(c.Settle(ctx, stream), c.Check()); err != nil {
		return err
	}
	own, out := make([]byte, len(in[rank])), make([]byte, g.OutputChunks*chunk)
	if err := errors.Join(dev.ReadAt(own, base+uintptr(input)), dev.ReadAt(out, base+uintptr(output))); err != nil {
		return err
	}
	return expect(p, rank, chunk, x, in, own, out)
}
