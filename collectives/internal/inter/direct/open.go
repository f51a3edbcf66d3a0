package direct

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Open decides, together with all ranks, whether kernels can exchange between hosts, and makes what they need.
func (d *Engine) Open(ctx context.Context) error {
	world := d.queue.World
	unwilling := d.allocate(ctx)
	apart, err := world.ReachPorts(ctx, d.counterparts(), d.slots, unwilling)
	if err != nil {
		return err
	}
	if apart != nil {
		world.Log().Debug("collectives over hosts go through memory of the host", "reason", apart)
		err := d.Close()
		d.channels = nil
		return err
	}
	if err := d.connect(ctx); err != nil {
		err = fmt.Errorf("channels of kernels: %w", err)
		world.Abort(err) // the others are connected, and would wait for this rank
		return err
	}
	if err := d.sendrecv.open(ctx); err != nil {
		return err
	}
	d.ended, d.end = make(chan struct{}), make(chan struct{})
	go d.watch()
	d.carries.Store(true)
	return nil
}

// counterparts are the ranks that this one exchanges with.
func (d *Engine) counterparts() (ranks []int) {
	h := d.queue
	for g := range h.Hosts {
		if g != h.Host {
			ranks = append(ranks, h.Hosts[g][h.Index])
		}
	}
	return ranks
}

// allocate makes what the rank needs by itself.
func (d *Engine) allocate(ctx context.Context) (err error) {
	h, q := d.queue, d.queue
	if d.exchange == nil || d.sum == nil {
		return fmt.Errorf("%w: no transport has the kernels for an exchange between hosts", framework.ErrUnsupported)
	}
	if _, err := d.exchange.Load(ctx, q.World, kernel.Uint8); err != nil {
		return err
	}
	hosts := uint64(len(h.Hosts))
	stride := (d.queue.Slot + kernelargs.CacheLine - 1) / kernelargs.CacheLine * kernelargs.CacheLine
	slot := kernelargs.ExchangeHead + stride
	if d.slots, err = q.World.Alloc(4 * hosts * slot); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	handles := hosts * uint64(unsafe.Sizeof(kernel.PortChannelHandle{}))
	front := (kernelargs.ExchangeStateBytes + handles + kernelargs.CacheLine - 1) / kernelargs.CacheLine * kernelargs.CacheLine
	if d.private, err = q.Device.Alloc(front + 4*hosts*stride); err != nil {
		return fmt.Errorf("memory of exchanges: %w", err)
	}
	if d.words, err = streamgate.Map(q.Device, q.HostDevice, (kernelargs.ExchangeNoteBytes+handles+4095)/4096*4096); err != nil {
		return fmt.Errorf("words of exchanges: %w", err)
	}
	d.note = (*kernelargs.ExchangeNote)(kernelargs.At(d.words.Host.Addr()))
	for i := range d.exchanges {
		b := &d.exchanges[i]
		if b.stream, err = q.Device.NewStream(); err != nil {
			return err
		}
		for k := range b.marks {
			if b.marks[k], err = q.Device.NewMark(); err != nil {
				return err
			}
		}
	}
	base := d.private.Addr()
	d.mine, d.stride = base+uintptr(front), stride
	d.theirs = d.mine + uintptr(2*hosts*stride)
	d.args = kernelargs.ExchangeArgs{
		Control: q.World.Control(), State: base, Note: d.words.Device.Addr(), Ports: base + kernelargs.ExchangeStateBytes,
		Slots: d.slots.Addr(), Slot: slot,
		Host: uint32(h.Host), Hosts: uint32(hosts),
	}
	if g := q.Inside.Group(); g != nil {
		d.args.Inside = g.Control()
	}
	d.sums = kernelargs.StepArgs{Control: q.World.Control(), Rank: uint32(h.Host), Ranks: uint32(hosts), Stride: stride}
	return nil
}

// connect makes the channels, and puts their handles where kernels find them.
func (d *Engine) connect(ctx context.Context) error {
	h := d.queue
	d.channels = make([]*comm.PortChannel, len(h.Hosts))
	for round := range len(h.Hosts) {
		g := (round - h.Host + len(h.Hosts)) % len(h.Hosts) // the host whose peer this one is in the same round
		if g == h.Host {
			continue
		}
		var err error
		if d.channels[g], err = d.queue.World.PortChannel(ctx, h.Hosts[g][h.Index], d.slots, d.slots); err != nil {
			return err
		}
	}
	return d.handOver(d.channels, d.words, kernelargs.ExchangeNoteBytes, d.args.Ports)
}

// Close is for when the streams with calls on them have ended.
func (d *Engine) Close() error {
	d.carries.Store(false)
	if d.ended != nil {
		close(d.end)
		<-d.ended
		d.ended = nil
	}
	var all []error
	for _, b := range d.exchanges { // a call that failed half-way has left kernels there
		if b.stream != 0 {
			ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
			all = append(all, d.queue.World.Settle(ctx, b.stream))
			cancel()
		}
	}
	all = append(all, d.sendrecv.close())
	for _, ch := range d.channels {
		if ch != nil {
			all = append(all, ch.Close())
		}
	}
	for _, b := range d.exchanges {
		for _, m := range b.marks {
			if m != nil {
				all = append(all, m.Close())
			}
		}
		if b.stream != 0 {
			all = append(all, d.queue.Device.CloseStream(b.stream))
		}
	}
	if d.slots != nil {
		all = append(all, d.slots.Close())
	}
	if d.private != nil {
		all = append(all, d.private.Close())
	}
	all = append(all, d.words.Close())
	d.channels, d.slots, d.private, d.words, d.note = nil, nil, nil, streamgate.Mapped{}, nil
	clear(d.exchanges[:])
	return errors.Join(all...)
}
