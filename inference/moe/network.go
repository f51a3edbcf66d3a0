package moe

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/internal/ownmemory"
)

// mostOverPorts is the memory that puts reach.
const mostOverPorts = 1 << 32

// openNetwork makes mirrors and channels, pair by pair: all ranks do so in the same order. It returns the addresses of mirrors.
func (b *Buffer) openNetwork(ctx context.Context, size uint64) (peers []uintptr, err error) {
	n, me := b.comm.Size(), b.comm.Rank()
	b.net = &network{peers: make([]link, n)}
	peers = make([]uintptr, n)
	for round := range n {
		r := (round - me + n) % n // the rank whose peer this one is in the same round
		if r == me {
			peers[r] = b.memory.Addr()
			continue
		}
		l := &b.net.peers[r]
		if l.mirror, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE); err != nil {
			return nil, fmt.Errorf("%w: %d bytes for what goes to rank %d: %w", framework.ErrUnavailable, size, r, err)
		}
		peers[r] = uintptr(unsafe.Pointer(unsafe.SliceData(l.mirror)))
		if l.memory, err = b.comm.Register(host.Wrap(peers[r], size)); err != nil {
			return nil, err
		}
		for _, ch := range []**comm.PortChannel{&l.data, &l.acks} {
			if *ch, err = b.comm.PortChannel(ctx, r, l.memory, b.memory.Opened()); err != nil {
				return nil, err
			}
		}
	}
	return peers, nil
}

func (x *network) close() error {
	if x == nil {
		return nil
	}
	var errs []error
	for i := range x.peers {
		l := &x.peers[i]
		for _, ch := range []*comm.PortChannel{l.data, l.acks} {
			if ch != nil {
				errs = append(errs, ch.Close())
			}
		}
		if l.memory != nil {
			errs = append(errs, l.memory.Close())
		}
		if l.mirror != nil {
			errs = append(errs, unix.Munmap(l.mirror))
		}
	}
	return errors.Join(errs...)
}

// carry is a call, or a phase of one: the order that launches and messages have.
func (b *Buffer) carry(kind int, phase Phase, ticket uint64, launch func(flags uint32) error) error {
	x := b.net
	sent := &b.recent[kind][ticket%2]
	if phase != Receive {
		before := &b.recent[kind][(b.issued[kind]+1)%2]
		if err := b.each(kind, "the acknowledgment of an earlier call", func(ctx context.Context, l *link) error { return arrive(ctx, l.acks, &l.acked, before.received) }); err != nil {
			return err
		}
		b.acknowledged(kind)
		if err := b.weigh(kind); err != nil {
			return err
		}
		if err := launch(sendPhase); err != nil {
			return err
		}
		if err := b.ship(kind); err != nil {
			return err
		}
		x.sends++
	}
	if phase == Send {
		return nil
	}
	order := x.sends
	if phase == Receive {
		order = sent.order
	}
	if err := b.each(kind, "the rank's call", func(ctx context.Context, l *link) error { return arrive(ctx, l.data, &l.came, order) }); err != nil {
		return err
	}
	if err := launch(receivePhase); err != nil {
		return err
	}
	x.receives++
	for r := range x.peers {
		if l := &x.peers[r]; l.acks != nil {
			if err := l.acks.Signal(); err != nil { // a rank that has left needs none
				return err
			}
		}
	}
	return nil
}

// acknowledged writes the words that kernels look at before they send: all ranks have received the call before the last.
func (b *Buffer) acknowledged(kind int) {
	launch := b.issued[kind] + 1
	if launch <= 2 {
		return
	}
	first := b.memory.Addr() + uintptr(b.args.Acks+(2*uint64(kind)+(launch+1)%2)*uint64(b.comm.Size())*ackBytes)
	for r := range b.net.peers {
		*(*uint64)(ownmemory.At(first + uintptr(r*ackBytes))) = launch - 2
	}
}

// arrive waits until a channel has had so many signals.
func arrive(ctx context.Context, ch *comm.PortChannel, seen *uint64, want uint64) error {
	for *seen < want {
		if err := ch.Wait(ctx); err != nil {
			return err
		}
		*seen++
	}
	return nil
}

// each waits for something of each other rank, as long as kernels would.
func (b *Buffer) each(kind int, what string, wait func(ctx context.Context, l *link) error) error {
	limit := time.Duration(b.comm.ControlWords().Deadline)
	for i := range b.net.peers {
		r := (b.comm.Rank() + i) % b.comm.Size()
		l := &b.net.peers[r]
		if l.data == nil {
			continue
		}
		ctx, cancel := context.Background(), func() {}
		if limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, limit)
		}
		err := wait(ctx, l)
		late := ctx.Err() != nil
		cancel()
		if err == nil {
			continue
		}
		if late {
			err = &framework.Error{Op: operations[kind], Peer: r, Err: fmt.Errorf("%w: no progress within %v: rank %d waits for %s", framework.ErrPeer, limit, b.comm.Rank(), what)}
			b.comm.Abort(err)
		}
		return err
	}
	return nil
}

// slot is the place of this rank's word among those of a kind, in the half of a launch.
func (b *Buffer) slot(kind int, launch uint64) uint64 {
	return (2*uint64(kind)+(launch+1)%2)*uint64(b.comm.Size()) + uint64(b.comm.Rank())
}

// ship puts what a send has written into mirrors.
func (b *Buffer) ship(kind int) error {
	a := &b.args
	launch := b.issued[kind] + 1
	mine := (launch+1)%2*uint64(a.Ranks) + uint64(a.Rank) // among the parts of all ranks, in both halves
	first := mine * uint64(a.MostTokens)
	for r := range b.net.peers {
		l := &b.net.peers[r]
		if l.data == nil {
			continue
		}
		put := func(at, bytes uint64) error {
			if bytes == 0 {
				return nil
			}
			return l.data.Put(at, at, bytes)
		}
		var err error
		if kind == dispatching {
			counts := uint64(a.MostLocal+1) * countBytes
			err = errors.Join(put(a.Counts+mine*counts, counts), put(a.Headers+first*headerBytes, uint64(a.Tokens)*headerBytes))
			head := peerWord(l, a.Headers+first*headerBytes)
			err = errors.Join(err, runs(uint64(a.Tokens), func(t uint64) bool { return *word(head, t*headerBytes) != 0 }, func(t, n uint64) error {
				return put(a.Rows+(first+t)*a.Stride, n*a.Stride)
			}))
		} else {
			records := ownmemory.At(a.RowsOfTokens)
			tokens := uint64(*word(records, 16*uint64(r)))
			of := 16*uint64(a.Ranks) + uint64(r)*uint64(a.MostTokens)*recordBytes
			err = errors.Join(err, runs(tokens, func(t uint64) bool { return *word(records, of+t*recordBytes) != 0 }, func(t, n uint64) error {
				return put(a.Partials+(first+t)*a.Stride, n*a.Stride)
			}))
		}
		at := a.Notices + b.slot(kind, launch)*noticeBytes
		if err = errors.Join(err, l.data.PutWithSignal(at, at, noticeBytes)); err != nil {
			return err
		}
	}
	return nil
}

// weigh trades the weights that dispatch has not brought: the kernel needs them before it sends. It has the same packets in mirrors.
func (b *Buffer) weigh(kind int) error {
	a, x := &b.args, b.net
	if kind != combining || a.Flags&weighted != 0 {
		return nil
	}
	launch := b.issued[kind] + 1
	number := (launch-1)%0xffffffff + 1
	first := a.Weights + ((launch+1)%2*uint64(a.Ranks)+uint64(a.Rank))*uint64(a.MostTokens)*weightBytes
	for i := range uint64(a.Tokens) * uint64(a.TopK) {
		var expert int64
		if a.Flags&index64 != 0 {
			expert = *(*int64)(unsafe.Add(ownmemory.At(a.Indices), 8*i))
		} else {
			expert = int64(*(*int32)(unsafe.Add(ownmemory.At(a.Indices), 4*i)))
		}
		if expert < 0 || expert >= int64(a.Experts) {
			continue
		}
		if l := &x.peers[uint32(expert)/a.Local]; l.data != nil {
			at := first + i/uint64(a.TopK)*weightBytes + i%uint64(a.TopK)*8
			*(*uint64)(peerWord(l, at)) = number<<32 | uint64(*word(ownmemory.At(a.Factors), 4*i))
		}
	}
	for r := range x.peers {
		l := &x.peers[r]
		if l.data == nil {
			continue
		}
		var err error
		if a.Tokens == 0 {
			err = l.data.Signal()
		} else {
			err = l.data.PutWithSignal(first, first, uint64(a.Tokens)*weightBytes)
		}
		if err != nil {
			return err
		}
	}
	x.sends++
	return b.each(kind, "weights of the rank", func(ctx context.Context, l *link) error { return arrive(ctx, l.data, &l.came, x.sends) })
}

func peerWord(l *link, at uint64) unsafe.Pointer { return unsafe.Pointer(&l.mirror[at]) }

func word(p unsafe.Pointer, at uint64) *uint32 { return (*uint32)(unsafe.Add(p, at)) }

// runs calls f for each run of neighbors that are wanted: its first one, and how many.
func runs(n uint64, wanted func(i uint64) bool, f func(first, count uint64) error) error {
	for i := uint64(0); i < n; i++ {
		first := i
		for i < n && wanted(i) {
			i++
		}
		if i == first {
			continue
		}
		if err := f(first, i-first); err != nil {
			return err
		}
	}
	return nil
}
