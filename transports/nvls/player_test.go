package nvls_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
)

// player is a rank on an emulated GPU, whose memory this process can touch.
type player struct {
	dev  *cuda.Device
	comm *comm.Communicator
}

func (p *player) close() error {
	var all []error
	if p.comm != nil {
		all = append(all, p.comm.Close())
	}
	if p.dev != nil {
		all = append(all, p.dev.Close())
	}
	return errors.Join(all...)
}

const (
	windowBytes = 2 << 20
	elements    = 256
	noteOffset  = 4096
)

// play makes a switch channel and uses it once: every rank sums over the window, and stores its number to all.
func (p *player) play(ctx context.Context) (summed bool, err error) {
	m, err := p.comm.Alloc(windowBytes)
	if err != nil {
		return false, err
	}
	ch, err := p.comm.SwitchChannel(ctx, m)
	if err != nil {
		return false, errors.Join(err, m.Close())
	}
	defer func() { err = errors.Join(err, ch.Close(), m.Close()) }()
	for i := range elements {
		*at[float32](m.Addr() + uintptr(4*i)) = float32((p.comm.Rank() + 1) * i)
	}
	if err := p.comm.Barrier(ctx); err != nil {
		return false, err
	}
	out, err := p.launch(ctx, ch)
	if err != nil {
		return false, err
	}
	n := p.comm.Size()
	for i := range elements {
		if want := float32(n * (n + 1) / 2 * i); out[i] != want {
			return false, fmt.Errorf("element %d is %v, expected %v", i, out[i], want)
		}
	}
	for r := range n {
		if got := *at[uint64](m.Addr() + noteOffset + uintptr(8*r)); got != uint64(r)+100 {
			return false, fmt.Errorf("the note of rank %d is %d, expected %d", r, got, r+100)
		}
	}
	return true, nil
}

func (p *player) launch(ctx context.Context, ch *comm.SwitchChannel) (out []float32, err error) {
	set, err := actor.Images()
	if err != nil {
		return nil, err
	}
	ptx, err := set.Read("actor-sm_90")
	if err != nil {
		return nil, err
	}
	module, err := p.comm.LoadImage(ptx)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	k, err := module.Kernel(actor.Symbol)
	if err != nil {
		return nil, err
	}
	page, err := p.dev.Alloc(64 << 10)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	stream, err := p.dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.dev.CloseStream(stream)) }()
	const note, sums, steps, words = 0, 1024, 8192, 16384
	base := page.Addr()
	*at[uint64](base + note) = uint64(p.comm.Rank()) + 100
	handle := ch.Handle()
	*at[[unsafe.Sizeof(handle)]byte](base + 512) = *(*[unsafe.Sizeof(handle)]byte)(unsafe.Pointer(&handle))
	list := []actor.Step{
		{Op: actor.SwitchSignal}, {Op: actor.SwitchWait},
		{Op: actor.SwitchReduce, Dst: uint64(base + sums), Bytes: 4 * elements},
		{Op: actor.SwitchBroadcast, Dst: uint64(noteOffset + 8*p.comm.Rank()), Src: uint64(base + note), Bytes: 8},
		{Op: actor.SwitchSignal}, {Op: actor.SwitchWait},
	}
	for i, s := range list {
		*at[actor.Step](base + steps + uintptr(i)*unsafe.Sizeof(s)) = s
	}
	args := actor.Args{
		Control: p.comm.Control(), Grid: base + words, Switches: base + 512, Steps: base + steps,
		Done: base + words + 64, Failed: base + words + 128, Count: uint32(len(list)),
	}
	if err := k.Launch(device.Launch{Grid: 2, Block: 64, Stream: stream}, unsafe.Pointer(&args), unsafe.Sizeof(args)); err != nil {
		return nil, err
	}
	if err := p.comm.Settle(ctx, stream); err != nil {
		return nil, err
	}
	if done := *at[uint64](args.Done); done != uint64(len(list)) {
		return nil, fmt.Errorf("%d steps were done, expected %d", done, len(list))
	}
	for i := range elements {
		out = append(out, math.Float32frombits(*at[uint32](base + sums + uintptr(4*i))))
	}
	return out, nil
}

// at is memory of an emulated GPU, whose addresses are those of the host.
func at[T any](addr uintptr) *T { return *(**T)(unsafe.Pointer(&addr)) }
