package comm

import (
	"context"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// PortChannel is a channel to one peer whose data a proxy moves. Kernels push
// triggers through its handle; the host can do the same with the methods below,
// without a kernel. The methods may be called concurrently.
type PortChannel struct {
	lifetime
	pair    pair
	service *proxyService
	link    *link
	handle  device.PortChannelHandle
	src     *Memory
	peerLen uint64

	life   context.Context // ends when Close begins
	cancel context.CancelFunc
	use    sync.RWMutex  // held for reading by those who are in a method
	turn   chan struct{} // holds one token: who has it may Wait
}

// PortChannel builds a channel to one peer: both ends call it. src is the rank's
// memory that puts read; open is what the peer's puts may write, its Dst. They
// may be the same.
func (c *Communicator) PortChannel(ctx context.Context, peer int, src, open *Memory) (*PortChannel, error) {
	if err := c.checkPeer(opPortChannel, peer); err != nil {
		return nil, err
	}
	ch := &PortChannel{src: src, turn: make(chan struct{}, 1)}
	ch.turn <- struct{}{}
	err := c.setUp(ctx, opPortChannel, func(ctx context.Context) error {
		mine := src.usable()
		if mine == nil {
			mine = open.usable()
		}
		pairs, err := c.pairUp(ctx, opPortChannel, []int{peer}, mine)
		if err != nil {
			return err
		}
		ch.pair = pairs[0]
		if ch.link, err = c.portLink(ctx, peer); err == nil {
			err = ch.join(ctx, c, open)
		}
		if err != nil {
			c.control.semaphores.cancel(ch.pair.mine) // either the peer has failed as well, or both end
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// portLink is link for port channels; with it goes the key of the semaphore
// counters, which proxies raise.
func (c *Communicator) portLink(ctx context.Context, peer int) (*link, error) {
	l, err := c.link(ctx, framework.KindPort, peer)
	if err != nil || l.peerKey.Data != nil {
		return l, err
	}
	if err := c.sendKey(ctx, l, peer, c.control.inbound); err != nil {
		return nil, err
	}
	l.peerKey, _, err = c.recvBareKey(ctx, peer)
	return l, err
}

// join trades keys with the peer and gives the proxy numbers for what triggers will
// cite.
func (ch *PortChannel) join(ctx context.Context, c *Communicator, open *Memory) error {
	if err := c.sendKey(ctx, ch.link, ch.pair.peer, open); err != nil {
		return err
	}
	key, bytes, err := c.recvBareKey(ctx, ch.pair.peer)
	if err != nil {
		return err
	}
	defer key.Close()
	ch.peerLen = bytes
	reg, err := ch.src.registration(ctx, ch.link.transport, c.dev.Info().Device)
	if err != nil {
		return &framework.Error{Op: "register", Peer: framework.NoPeer, Err: err}
	}
	if ch.service, err = c.proxy(ctx, ch.link.transport); err != nil {
		return &framework.Error{Op: opPortChannel, Peer: framework.NoPeer, Err: err}
	}
	n, err := ch.service.bind(ctx, portBinding{
		src:       framework.MemoryBinding{Local: reg.ID},
		dst:       framework.MemoryBinding{Conn: ch.link.conn, Key: key},
		semaphore: framework.SemaphoreBinding{Conn: ch.link.conn, Key: ch.link.peerKey, Offset: uint64(ch.pair.theirs) * semaphoreStride},
	})
	if err == nil {
		ch.handle = device.PortChannelHandle{
			Semaphore:     c.semaphoreHandle(ch.pair, 0),
			Fifo:          ch.service.ring.Handle(c.control.deviceAddr),
			FlushDone:     ch.service.ring.FlushWord(n.semaphore),
			DstMemory:     n.dst,
			SrcMemory:     n.src,
			SemaphoreSlot: n.semaphore,
		}
		ch.life, ch.cancel = context.WithCancel(context.Background())
		err = ch.begin(c, ch, ch.src, open)
	}
	if err != nil {
		ch.service.leave()
		return &framework.Error{Op: opPortChannel, Peer: ch.pair.peer, Err: err}
	}
	return nil
}

// Kind implements framework.Channel.
func (ch *PortChannel) Kind() framework.Kind { return framework.KindPort }

// Handle returns what a kernel takes.
func (ch *PortChannel) Handle() device.PortChannelHandle { return ch.handle }

// AppendBinary implements framework.Channel.
func (ch *PortChannel) AppendBinary(b []byte) ([]byte, error) {
	return appendHandle(b, &ch.handle), nil
}

// Close ends the use of the channel by this rank, also of those who wait in a
// method. What was pushed before is performed.
func (ch *PortChannel) Close() error { return shutNow(ch) }

func (ch *PortChannel) shut(ctx context.Context) error {
	return ch.end(ch, func() error {
		ch.cancel()
		ch.use.Lock() // all are out, and nobody comes in
		defer ch.use.Unlock()
		err := ch.drain(ctx)
		c := ch.comm
		c.control.semaphores.close(ch.pair)
		if ch.service.leave() {
			if e := c.retire(ctx, ch.link.transport, ch.service); err == nil {
				err = e
			}
		}
		if c.aborted() {
			return nil
		}
		return err
	})
}

// drain waits until all triggers of the channel are performed.
func (ch *PortChannel) drain(ctx context.Context) error {
	if ch.comm.aborted() {
		return nil
	}
	pos, err := ch.service.ring.PushContext(ctx, ch.trigger(device.TriggerFlush, 0, 0, 0))
	if err == nil {
		err = ch.service.ring.WaitFlushed(ctx, ch.handle.SemaphoreSlot, pos)
	}
	if err != nil {
		return ch.comm.blame("close port channel", ch.pair.peer, err)
	}
	return nil
}

var _ framework.Channel = (*PortChannel)(nil)
