package devicetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/transports/nvls"
)

func (r *rank) openSwitch(ctx context.Context, facts *framework.Facts) error {
	facts.Other[topo.FactMulticast], facts.Other[topo.FactDriver] = topo.MulticastYes, strconv.Itoa(r.dev.DriverVersion())
	if err := r.dev.Multicast(); err != nil {
		facts.Other[topo.FactMulticast] = err.Error()
	}
	inner, err := nvls.New(nvls.Config{}.Defaults())
	if err != nil {
		return err
	}
	r.window, err = comm.NewTransport(ctx, inner, "embedded")
	return err
}

// interpreted runs a test of this package in a process of its own, whose emulated GPUs run the committed PTX: windows of a
// switch are reached by nothing else. It reports whether this is that process. A real switch is left alone.
func interpreted(t *testing.T, env ...string) (inside bool) {
	t.Helper()
	const mark = "DEVICETEST_INTERPRETED"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	needsGPU(t)
	if imageFolder == "" {
		t.Skip("needs the emulated driver: multicast of real switches is not touched by tests")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(append(os.Environ(), mark+"="+t.Name(), emulated.EnvRun+"=ptx", "NCCL_NVLS_ENABLE=1"), env...)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v: %s", err, out)
	}
	return false
}

// overSwitch lists calls by kernels over a window, for all types and operations that each has.
func overSwitch() (list []trial) {
	count := 0
	add := func(k collectives.Collective, algorithm string, typ kernel.DataType, op kernel.Op) {
		count++
		x := trial{Kind: k, Algorithm: algorithm, Count: []int{1, 257, 4096}[count%3], Type: typ, Op: op, Graph: count%5 == 0}
		list = append(list, x)
	}
	integers := []kernel.DataType{kernel.Int32, kernel.Uint32, kernel.Int64, kernel.Uint64}
	halves := []kernel.DataType{kernel.Float16, kernel.BFloat16}
	for _, typ := range slices.Concat(integers, halves, []kernel.DataType{kernel.Float32, kernel.Float64}) {
		for _, op := range []kernel.Op{kernel.Sum, kernel.Avg} {
			add(collectives.AllReduce, "switch", typ, op)
			add(collectives.ReduceScatter, "switch", typ, op)
		}
		for _, op := range []kernel.Op{kernel.Sum, kernel.Prod, kernel.Max} {
			add(collectives.AllReduce, "switch_packets", typ, op)
		}
	}
	for _, typ := range slices.Concat(integers, halves) {
		add(collectives.AllReduce, "switch_minmax", typ, kernel.Min)
		add(collectives.AllReduce, "switch_minmax", typ, kernel.Max)
	}
	for _, typ := range []kernel.DataType{kernel.Uint8, kernel.Float16, kernel.Float64} {
		for range 3 { // of each length
			add(collectives.AllGather, "switch", typ, kernel.Sum)
			add(collectives.Broadcast, "switch", typ, kernel.Sum)
		}
	}
	return list
}

// Kernels over the window of a switch serve the types and operations that they have, in the committed PTX.
func TestSwitch(t *testing.T) {
	if !interpreted(t) {
		return
	}
	run(t, make([]string, 2), setting{nvls: true}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		const half = 1 << 20
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		for i, x := range overSwitch() {
			x.Graph = x.Graph && i > 0 // the first call opens the window
			took, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(i))
			if !took || err != nil {
				return fmt.Errorf("%v: served %v: %w", x, took, err)
			}
		}
		if err := r.Barrier(&collectives.CallOptions{Algorithm: "switch", Stream: r.stream}); err != nil {
			return err
		}
		return r.settle(ctx)
	})
}

// A switch that one rank cannot have is withdrawn on all, and another algorithm serves the call that chose it and those after.
func TestSwitchIsWithdrawn(t *testing.T) {
	if !interpreted(t, emulated.EnvFaults+"=cuMulticastBindMem@1:401") {
		return
	}
	o := collectives.Options{Table: []collectives.Row{{Collective: collectives.AllReduce, Algorithm: "switch"}}}
	run(t, make([]string, 2), setting{nvls: true}, o, func(ctx context.Context, r *rank) error {
		const half = 1 << 20
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		for i := range 3 {
			x := trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
			if _, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(i)); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		// One that names it gets the reason.
		x := trial{Kind: collectives.AllReduce, Algorithm: "switch", Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
		_, err = attempt(r, r.rig(ctx, m.Addr(), half), x, 9)
		if err == nil || !strings.Contains(err.Error(), "fabric manager") {
			return fmt.Errorf("by name: %w: expected the reason of the switch", err)
		}
		return nil
	})
}
