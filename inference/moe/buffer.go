package moe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/inference/moe/image"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/internal/ownmemory"
)

// kernelOf is the kernel of an algorithm.
func kernelOf(algorithm string) ownkernel.Kernel {
	return ownkernel.Kernel{Family: "moe", Algorithm: algorithm, Symbol: "mscclpp_moe_" + algorithm, Purpose: "experts", Layout: layout(), Images: image.Images}
}

// New makes a buffer. It is collective. Where not all ranks reach each other's memory, port channels join them, with the same calls; those of ranks on
// GPUs go through the host then. ErrUnavailable: there are no port channels, or no kernels for the device and the host.
func New(ctx context.Context, c *comm.Communicator, o Options) (*Buffer, error) {
	b := &Buffer{comm: c, options: o, host: c.Device().Info().Device == framework.Host, number: waitMark | waitNumber.Add(1)&waitMask}
	mistake := o.Check(c.Size())
	for i, algorithm := range []string{"dispatch", "combine"} {
		b.code[i] = kernelOf(algorithm)
		if mistake == nil {
			mistake = b.code[i].Find(c)
		}
	}
	if err := b.agree(ctx, mistake); err != nil {
		return nil, err
	}
	apart, err := ownmemory.Apart(ctx, c)
	if err != nil {
		return nil, err
	}
	if apart != nil && !c.Offers(framework.KindPort) {
		return nil, fmt.Errorf("%w: buffer: expected that all ranks reach each other's memory, or port channels: %w", framework.ErrUnavailable, apart)
	}
	b.local = o.Local(c.Size())
	if apart != nil && !b.host {
		b.twin, err = newTwin(ctx, c, o)
	} else {
		err = b.makeMemory(ctx, apart != nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("buffer: %w", err), b.release())
	}
	b.list(b.Close)
	return b, nil
}

// agree compares the options of all ranks.
func (b *Buffer) agree(ctx context.Context, mistake error) error {
	mine := b.options.encode()
	if mistake != nil {
		mine = []byte(mistake.Error())
	}
	all, err := b.comm.AllGather(ctx, mine)
	if err != nil || mistake != nil {
		return errors.Join(mistake, err)
	}
	for r, theirs := range all {
		if text := b.options.differs(theirs, b.comm.Rank()); text != "" {
			return &framework.Error{Op: "buffer", Peer: r, Err: fmt.Errorf("%w: %s", framework.ErrInvalid, text)}
		}
	}
	return nil
}

// makeMemory makes it. Where rows arrive every word is the sentinel.
func (b *Buffer) makeMemory(ctx context.Context, apart bool) (err error) {
	n := b.comm.Size()
	p, size := b.options.arrange(n)
	if apart && size > mostOverPorts {
		return invalid("buffer", "%d bytes for ranks that do not share memory: expected at most %d, with fewer tokens or shorter rows", size, uint64(mostOverPorts))
	}
	if apart {
		b.comm.Log().Info("experts over port channels, as not all ranks reach each other's memory", "bytes", b.options.NetworkBytes(n))
	} else {
		b.comm.Log().Info("experts over memory of the ranks", "bytes", size)
	}
	if b.memory, err = ownmemory.New(b.comm, size); err != nil {
		return err
	}
	if err := ownmemory.Fill(b.comm.Device(), b.memory.Addr()+uintptr(p.Rows), size-p.Rows); err != nil {
		return err
	}
	var peers []byte
	if apart {
		var at []uintptr
		at, err = b.openNetwork(ctx, size)
		for _, addr := range at {
			peers = binary.LittleEndian.AppendUint64(peers, uint64(addr))
		}
	} else {
		peers, err = b.memory.Exchange(ctx)
	}
	if err != nil {
		return err
	}
	const head = unsafe.Sizeof(moeState{})
	base, err := b.memory.Keep(head, peers)
	if err != nil {
		return err
	}
	a := &b.args
	a.moeMemory = moeMemory{Control: b.comm.Control(), State: base, Peers: base + head, places: p, Stride: b.options.stride()}
	a.MostTokens, a.Experts, a.Local, a.MostLocal = uint32(b.options.Tokens), uint32(b.options.Experts), uint32(b.local), uint32(b.local)
	a.Inverse = uint32((uint64(1)<<32 + uint64(b.local) - 1) / uint64(b.local))
	a.Rank, a.Ranks, a.Kernel = uint32(b.comm.Rank()), uint32(n), b.number
	return nil
}

// Close releases what the buffer has. A call in progress, which waits for peers, ends with ErrClosed, and with it the
// communicator. Otherwise Close is local.
func (b *Buffer) Close() error {
	if b.running.Close() {
		_ = b.interrupt()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.unlist()
	return errors.Join(b.quiet(), b.order.Close(), b.release())
}

func (b *Buffer) release() error {
	return errors.Join(b.twin.close(), b.net.close(), b.memory.Close(), b.code[0].Close(), b.code[1].Close())
}
