package collectives

import (
	"context"
	"errors"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/intra"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/streamgate"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// hierarchicalDirect is the name of the algorithm whose data goes from memory of a GPU
// to memory of a GPU.
const hierarchicalDirect = "hierarchical_direct"

// exchangeBlocks is the most that exchange with. The kernels inside a host, which may
// run at the same time and wait for each other, leave that many multiprocessors alone:
// else both kinds could wait for room that the other takes on another GPU.
const exchangeBlocks = 8

// exchangeBlockBytes is how much there has to be for each block to be worth it.
const exchangeBlockBytes = 32 << 10

// direct is the way between hosts on which the host has no part: kernels drive port
// channels, and adapters of the network reach memory of the GPU. All that it counts is
// in memory of the device, so its calls can be captured. It exists where all hosts have
// as many ranks, and the transports between counterparts take memory of the device of
// every rank. Rank i of each host is a counterpart of rank i of all others.
type direct struct {
	ports    *ports
	device   streamgate.Device
	exchange *engine.Kernel
	sum      *engine.Kernel

	slots    *comm.Memory  // that adapters reach: kernels/exchange_args.h
	private  device.Memory // state, handles, and what is for the hosts and what they gave, in two halves each
	mine     uintptr       // the first half of what is for the hosts
	theirs   uintptr       // and of what they gave
	stride   uint64        // from what is of one host to what is of the next
	words    streamgate.Mapped
	note     *exchangeNote
	channels []*comm.PortChannel // by host
	beside   [2]beside           // calls, and those that are captured: a stream may be in a capture until that ends
	args     exchangeArgs
	sums     stepArgs
	loaded   [collectives]bool // kernels inside
	blocks   uint32            // of one launch that sums
	mail     *mail
	end      chan struct{} // ends the watch
	ended    chan struct{} // nil: it was not begun
}

// beside is for what goes on beside the kernels inside.
type beside struct {
	stream device.Stream
	marks  [3]device.Mark
}

// offerDirect lists the algorithms. Whether they serve calls is found out before the first.
func offerDirect(h *hierarchy, sharing int) (list []hostAlgorithm) {
	p := h.ports
	if h.Fewest != h.Most || p.courier == nil {
		return nil
	}
	steps := engine.Discover(h.world.Kernels(), 1).Steps
	sms := h.world.Device().Info().SMs
	most := intra.MostBlocks(sms, sharing, h.options.MaxBlocks)
	d := &direct{ports: p, device: p.courier.device, exchange: steps["exchange"], sum: steps["sum"], blocks: min(sumBlocks, most)}
	d.mail = &mail{direct: d, kernel: steps["mail"]}
	h.direct = d
	if n := sms / max(1, sharing); n > 0 {
		h.options.MaxBlocks = int(min(most, uint32(max(1, n-exchangeBlocks))))
	}
	reduces := func(r Request) bool { return h.carries.Load() && d.canReduce(r) }
	moves := func(Request) bool { return h.carries.Load() }
	for _, a := range []struct {
		collective Collective
		fits       func(Request) bool
		trip       func(*trip)
	}{
		{AllReduce, reduces, (*trip).allReduceDirect},
		{ReduceScatter, reduces, (*trip).reduceScatterDirect},
		{AllGather, moves, (*trip).allGatherDirect},
		{Barrier, moves, (*trip).barrierDirect},
		{Broadcast, moves, (*trip).broadcastDirect},
		{Reduce, reduces, (*trip).reduceDirect},
		{AllToAll, moves, (*trip).allToAllDirect},
	} {
		list = append(list, hostAlgorithm{Row{Collective: a.collective, Algorithm: hierarchicalDirect}, a.fits, func(call *Call) error {
			return p.enqueueDirect(call, a.trip)
		}})
	}
	return list
}

// canReduce reports whether there are kernels for a reduction.
func (d *direct) canReduce(r Request) bool {
	return (d.ports.hierarchy.Most == 1 || crosshost.Partial(r.Type, r.Op)) && slices.Contains(d.sum.Types, r.Type.String())
}

// open decides, together with all ranks, whether there is such a way, and makes it.
func (d *direct) open(ctx context.Context) error {
	if d == nil {
		return nil
	}
	h, world := d.ports.hierarchy, d.ports.courier.world
	unwilling := d.allocate(ctx)
	apart, err := world.ReachPorts(ctx, d.counterparts(), d.slots, unwilling)
	if err != nil {
		return err
	}
	if apart != nil {
		world.Log().Debug("collectives over hosts go through memory of the host", "reason", apart)
		err := d.close()
		d.channels = nil
		return err
	}
	if err := d.connect(ctx); err != nil {
		err = fmt.Errorf("channels of kernels: %w", err)
		world.Abort(err) // the others are connected, and would wait for this rank
		return err
	}
	if err := d.mail.open(ctx); err != nil {
		return err
	}
	d.ended, d.end = make(chan struct{}), make(chan struct{})
	go d.watch()
	h.carries.Store(true)
	return nil
}

// counterparts are the ranks that this one exchanges with.
func (d *direct) counterparts() (ranks []int) {
	h := d.ports.hierarchy
	for g := range h.Hosts {
		if g != h.Host {
			ranks = append(ranks, h.Hosts[g][h.Index])
		}
	}
	return ranks
}

// allocate makes what the rank needs by itself.
func (d *direct) allocate(ctx context.Context) (err error) {
	h, k := d.ports.hierarchy, d.ports.courier
	if d.exchange == nil || d.sum == nil {
		return fmt.Errorf("%w: no transport has the kernels for an exchange between hosts", framework.ErrUnsupported)
	}
	if _, err := d.exchange.Load(ctx, k.world, kernel.Uint8); err != nil {
		return err
	}
	hosts := uint64(len(h.Hosts))
	stride := (d.ports.Piece + line - 1) / line * line
	slot := exchangeHead + stride
	if d.slots, err = k.world.Alloc(4 * hosts * slot); err != nil {
		return fmt.Errorf("slots: %w", err)
	}
	handles := hosts * uint64(unsafe.Sizeof(kernel.PortChannelHandle{}))
	front := (exchangeStateBytes + handles + line - 1) / line * line
	if d.private, err = d.device.Alloc(front + 4*hosts*stride); err != nil {
		return fmt.Errorf("memory of exchanges: %w", err)
	}
	if d.words, err = streamgate.Map(d.device, k.host, (exchangeNoteBytes+handles+4095)/4096*4096); err != nil {
		return fmt.Errorf("words of exchanges: %w", err)
	}
	d.note = (*exchangeNote)(at(d.words.Host.Addr()))
	for i := range d.beside {
		b := &d.beside[i]
		if b.stream, err = d.device.NewStream(); err != nil {
			return err
		}
		for k := range b.marks {
			if b.marks[k], err = d.device.NewMark(); err != nil {
				return err
			}
		}
	}
	base := d.private.Addr()
	d.mine, d.stride = base+uintptr(front), stride
	d.theirs = d.mine + uintptr(2*hosts*stride)
	d.args = exchangeArgs{
		Control: k.world.Control(), State: base, Note: d.words.Device.Addr(), Ports: base + exchangeStateBytes,
		Slots: d.slots.Addr(), Slot: slot,
		Host: uint32(h.Host), Hosts: uint32(hosts),
	}
	if h.group != nil {
		d.args.Inside = h.group.Control()
	}
	d.sums = stepArgs{Control: k.world.Control(), Rank: uint32(h.Host), Ranks: uint32(hosts), Stride: stride}
	return nil
}

// connect makes the channels, and puts their handles where kernels find them.
func (d *direct) connect(ctx context.Context) error {
	h := d.ports.hierarchy
	d.channels = make([]*comm.PortChannel, len(h.Hosts))
	for round := range len(h.Hosts) {
		g := (round - h.Host + len(h.Hosts)) % len(h.Hosts) // whose host this one is in the same round
		if g == h.Host {
			continue
		}
		var err error
		if d.channels[g], err = d.ports.courier.world.PortChannel(ctx, h.Hosts[g][h.Index], d.slots, d.slots); err != nil {
			return err
		}
	}
	return d.handOver(d.channels, d.words, exchangeNoteBytes, d.args.Ports)
}

// handOver copies handles of channels to memory of the device, through words of the host.
func (d *direct) handOver(channels []*comm.PortChannel, words streamgate.Mapped, behind uint64, to uintptr) error {
	staged := device.Bytes(words.Host)[behind:]
	size := int(unsafe.Sizeof(kernel.PortChannelHandle{}))
	for i, ch := range channels {
		if ch == nil { // to the own host
			continue
		}
		handle, err := ch.AppendBinary(nil)
		if err != nil {
			return err
		}
		copy(staged[i*size:], handle)
	}
	s := d.beside[0].stream
	if err := d.device.Copy(s, to, words.Device.Addr()+uintptr(behind), uint64(len(channels)*size)); err != nil {
		return err
	}
	return d.device.Sync(s)
}

// close is for when the streams with calls on them have ended.
func (d *direct) close() error {
	if d == nil {
		return nil
	}
	if d.ended != nil {
		close(d.end)
		<-d.ended
		d.ended = nil
	}
	var all []error
	for _, b := range d.beside { // a call that failed half-way has left kernels there
		if b.stream != 0 {
			ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
			all = append(all, d.ports.courier.world.Settle(ctx, b.stream))
			cancel()
		}
	}
	all = append(all, d.mail.close())
	for _, ch := range d.channels {
		if ch != nil {
			all = append(all, ch.Close())
		}
	}
	for _, b := range d.beside {
		for _, m := range b.marks {
			if m != nil {
				all = append(all, m.Close())
			}
		}
		if b.stream != 0 {
			all = append(all, d.device.CloseStream(b.stream))
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
	clear(d.beside[:])
	return errors.Join(all...)
}
