package exec_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

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

// On emulated GPUs plans run in the order of a stream, from the images of this module, with tables in memory of the device;
// what is to be staged is copied on the stream.
func TestPlansOnAnEmulatedGPU(t *testing.T) {
	t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{Spec: "../image/kernels.json", Types: []string{"i32"}}))
	plansOnGPUs(t)
}

// The same from the PTX of the committed images, which have one block for each of the plan's.
func TestPlansFromPTX(t *testing.T) {
	t.Setenv(emulated.EnvImages, t.TempDir()) // none for processors
	t.Setenv(emulated.EnvRun, "ptx")
	plansOnGPUs(t)
}

// Blocks go through large operands in rounds of loads, of which the last one is not whole.
func TestLargeChunksFromPTX(t *testing.T) {
	t.Setenv(emulated.EnvImages, t.TempDir())
	t.Setenv(emulated.EnvRun, "ptx")
	const bytes = 2 * (3*40<<10 + 7*16)
	plans := []*schema.Plan{compile(t, "allreduce-2pa-chunks", library.Shape{Ranks: 2, Blocks: 3}), compile(t, "allgather-chunks", library.Shape{Ranks: 2, Blocks: 3})}
	ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		stream, err := dev.NewStream()
		if err != nil {
			return err
		}
		for _, p := range plans {
			if err := calls(ctx, c, dev, p, exec.Call{Stream: stream}, true, bytes); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
		return dev.CloseStream(stream)
	})
}

func plansOnGPUs(t *testing.T) {
	plans := []*schema.Plan{compile(t, "allreduce-1pa", library.Shape{Ranks: 2}), compile(t, "allreduce-2pa-chunks", library.Shape{Ranks: 2, InPlace: true}),
		compile(t, "allgather-chunks", library.Shape{Ranks: 2})}
	ranktest.OnEmulatedGPUs(t, 2, func(ctx context.Context, c *comm.Communicator, dev *cuda.Device) error {
		return onGPU(ctx, c, dev, plans)
	})
}

func onGPU(ctx context.Context, c *comm.Communicator, dev *cuda.Device, plans []*schema.Plan) error {
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
	if err := onStreams(ctx, c, dev, plans[0]); err != nil {
		return fmt.Errorf("several streams: %w", err)
	}
	if err := onHandle(ctx, c, dev, plans[0]); err != nil {
		return fmt.Errorf("a handle that is used again: %w", err)
	}
	return errors.Join(c.Settle(ctx, stream), dev.CloseStream(stream))
}

// onStreams makes calls by turns on streams that the program destroys before the executor is closed: the driver is not asked about them
// any more.
func onStreams(ctx context.Context, c *comm.Communicator, dev *cuda.Device, p *schema.Plan) error {
	e, err := exec.New(ctx, c, p)
	if err != nil {
		return err
	}
	const n = 4096
	m, err := c.Alloc(n)
	if err != nil {
		return err
	}
	data, want := make([]byte, n), make([]byte, n)
	const launches = 6 // each doubles, since both ranks have the same
	for i := range uint32(n / 4) {
		binary.LittleEndian.PutUint32(data[4*i:], i)
		binary.LittleEndian.PutUint32(want[4*i:], i<<launches)
	}
	addr := m.Addr()
	if err := dev.WriteAt(data, addr); err != nil {
		return err
	}
	buffer := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	var streams [2]device.Stream
	for i := range streams {
		if streams[i], err = dev.NewStream(); err != nil {
			return err
		}
	}
	for launch := range launches {
		call := &exec.Call{Input: buffer, Output: buffer, InputBytes: n, OutputBytes: n, Type: kernel.Int32, Stream: streams[launch%2]}
		if err := e.Execute(call); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Settle(ctx, streams[0]), c.Settle(ctx, streams[1]), dev.ReadAt(data, addr)); err != nil {
		return err
	}
	if !slices.Equal(data, want) {
		return errors.New("launches on two streams have another result than expected")
	}
	return errors.Join(dev.CloseStream(streams[0]), dev.CloseStream(streams[1]), e.Close(), m.Close())
}

// onHandle makes a call on a stream that is held up, and one on a stream that may have got the handle of the first: it begins when the
// first call has ended.
func onHandle(ctx context.Context, c *comm.Communicator, dev *cuda.Device, p *schema.Plan) error {
	e, err := exec.New(ctx, c, p)
	if err != nil {
		return err
	}
	const n = 4096
	m, err := c.Alloc(n + 64)
	if err != nil {
		return err
	}
	addr, latch := m.Addr(), m.Addr()+n
	if err := dev.WriteAt(make([]byte, n+64), addr); err != nil {
		return err
	}
	buffer := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	call := exec.Call{Input: buffer, Output: buffer, InputBytes: n, OutputBytes: n, Type: kernel.Int32}
	first, err := dev.NewStream()
	if err != nil {
		return err
	}
	call.Stream = first
	err = errors.Join(dev.WaitValue(first, latch, 1), dev.Memset(first, addr, 1, n), e.Execute(&call), dev.CloseStream(first))
	if err != nil {
		return err
	}
	second := device.Stream(0)
	var others []device.Stream
	for range 64 { // the allocator decides whether the handle comes back
		if second, err = dev.NewStream(); err != nil || second == first {
			break
		}
		others = append(others, second)
	}
	if err != nil {
		return err
	}
	call.Stream = second
	if err := e.Execute(&call); err != nil {
		return err
	}
	for range 20 { // one that does not wait for the first has time to run
		if state, err := dev.Query(second); err != nil || state != device.StreamBusy {
			return fmt.Errorf("state %v, %v: expected the call to wait for the one before it", state, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	release, err := dev.NewStream()
	if err != nil {
		return err
	}
	if err := errors.Join(dev.Write(release, latch, 1), c.Settle(ctx, second)); err != nil {
		return err
	}
	data := make([]byte, n)
	if err := dev.ReadAt(data, addr); err != nil {
		return err
	}
	for i := 0; i < n; i += 4 {
		if got := binary.LittleEndian.Uint32(data[i:]); got != 4*0x01010101 {
			return fmt.Errorf("element %d is %#x: expected %#x", i/4, got, 4*0x01010101)
		}
	}
	if !slices.Contains(others, second) {
		others = append(others, second)
	}
	for _, s := range append(others, release) {
		if err := dev.CloseStream(s); err != nil {
			return err
		}
	}
	return errors.Join(e.Close(), m.Close())
}

// calls makes some calls of an all-reduce or an all-gather, in place and not. Exchanged buffers are reached where they are, others staged.
func calls(ctx context.Context, c *comm.Communicator, dev *cuda.Device, p *schema.Plan, x exec.Call, exchanged bool, most uint32) error {
	e, err := exec.New(ctx, c, p)
	if err != nil {
		return err
	}
	m, err := c.Alloc(2 * uint64(most))
	if err != nil {
		return err
	}
	if exchanged {
		if _, err := c.Exchange(ctx, m); err != nil {
			return err
		}
	}
	n := most
	if p.Collective == "allgather" {
		n = most / 2
	}
	for launch := range uint32(6) {
		data, want := make([]byte, n), make([]byte, most)
		for i := range n / 4 {
			binary.LittleEndian.PutUint32(data[4*i:], (launch+1)*(i+7)*uint32(c.Rank()+1))
			sum := (launch + 1) * (i + 7) * 3
			if x.Op = kernel.Sum; launch%3 == 2 {
				x.Op, sum = kernel.Avg, sum/2
			}
			if n < most {
				binary.LittleEndian.PutUint32(want[4*i:], (launch+1)*(i+7))
				binary.LittleEndian.PutUint32(want[n+4*i:], (launch+1)*(i+7)*2)
				continue
			}
			binary.LittleEndian.PutUint32(want[4*i:], sum)
		}
		if x.Op == kernel.Avg && n < most {
			x.Op = kernel.Sum
		}
		in, out := m.Addr(), m.Addr()+uintptr(most)
		if launch%2 == 1 {
			out = in
			if n < most { // in place: the rank's part of the output
				in += uintptr(n) * uintptr(c.Rank())
			}
		}
		if err := dev.WriteAt(data, in); err != nil {
			return err
		}
		x.Input, x.Output, x.InputBytes, x.OutputBytes, x.Type = *(*unsafe.Pointer)(unsafe.Pointer(&in)), *(*unsafe.Pointer)(unsafe.Pointer(&out)), uint64(n), uint64(most), kernel.Int32
		x.Packet = []exec.Packet{exec.LL8, exec.LL16}[launch/3]
		if err := e.Execute(&x); err != nil {
			return err
		}
		if err := errors.Join(c.Settle(ctx, x.Stream), c.Check()); err != nil {
			return err
		}
		got := make([]byte, most)
		if err := dev.ReadAt(got, out); err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("launch %d: another result than expected", launch)
		}
	}
	return errors.Join(e.Close(), m.Close())
}
