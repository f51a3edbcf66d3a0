package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// valve holds back the messages that a rank sends over the wire, from shut to open.
type valve struct {
	shut, open chan struct{} // closed
}

// held is a wire behind a valve.
type held struct {
	framework.Transport
	valve *valve
}

func (t held) NewProxy(ctx context.Context) (framework.Proxy, error) {
	inner, err := t.Transport.(framework.Proxier).NewProxy(ctx)
	if err != nil {
		return nil, err
	}
	p := &heldProxy{Proxy: inner, valve: t.valve}
	p.outer = proxy.NewBase(p.handler, proxy.Options{})
	return p, nil
}

// heldProxy hands triggers on to another proxy, in their order.
type heldProxy struct {
	framework.Proxy
	valve *valve
	outer *proxy.Base
	ring  *ring.Ring // of the other one
}

func (p *heldProxy) handler(r *ring.Ring) proxy.Handler {
	return func(t kernel.Trigger, pos uint64) proxy.Result {
		select {
		case <-p.valve.shut:
			<-p.valve.open
		default:
		}
		at, err := p.ring.Push(t)
		if slot := t.Slot(); err == nil && t.Kind()&kernel.TriggerFlush != 0 {
			if err = p.ring.WaitFlushed(context.Background(), slot, at); err == nil {
				r.Complete(slot, pos)
			}
		}
		if err != nil {
			return proxy.Fail(err)
		}
		return proxy.Continue
	}
}

func (p *heldProxy) Start(ctx context.Context, s framework.Share) (err error) {
	if p.ring, err = ring.New(512); err != nil {
		return err
	}
	inner, err := p.ring.Share()
	if err != nil {
		return err
	}
	defer inner.Close()
	if err := p.Proxy.Start(ctx, inner); err != nil {
		return err
	}
	return p.outer.Start(ctx, s)
}

func (p *heldProxy) Wait(ctx context.Context) error { return p.outer.Wait(ctx) }

func (p *heldProxy) Stop(ctx context.Context) error {
	err := errors.Join(p.outer.Stop(ctx), p.Proxy.Stop(ctx))
	if p.ring != nil {
		err = errors.Join(err, p.ring.Close())
	}
	return err
}

// lookout is the context of a wait for a message. Waits ask it behind each of their looks for
// what came in place of the message.
type lookout struct {
	context.Context
	came  func() bool // a packet has
	done  func()      // it was looked at often enough for a contradiction
	looks int
	next  time.Time
}

func (l *lookout) Err() error {
	const often = 4 // to see it, and to see it settled, and then once more each
	if now := time.Now(); l.looks < often && l.came() && now.After(l.next) {
		l.next = now.Add(collectives.MisplacedPatience + time.Millisecond)
		if l.looks++; l.looks == often {
			l.done()
		}
	}
	return l.Context.Err()
}

// A message that is late, while the packet of the next call has come from another rank of the
// sender's host long ago, is no contradiction: the job goes on. The rank that waits looks
// at the packet for as long as would make it one, and only then the message is let go.
func TestLateMessageBesidePackets(t *testing.T) {
	const sender, receiver, prompt = 3, 0, 2
	g := &valve{shut: make(chan struct{}), open: make(chan struct{})}
	open := sync.OnceFunc(func() { close(g.open) })
	defer open()
	looked := 0
	behind := func(rank int, w framework.Transport) framework.Transport {
		if rank != sender {
			return w
		}
		return held{w, g}
	}
	hostsOver(t, []string{"a", "a", "b", "b"}, framework.SignalAtomic, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) (err error) {
		defer func() {
			if err != nil {
				open()
			}
		}()
		if err := errors.Join(c.Barrier(nil), c.Communicator().Barrier(ctx)); err != nil {
			return err
		}
		message := []int32{1, 20, 300, 4000}
		switch c.Rank() {
		case sender:
			close(g.shut)
			err = c.Send(unsafe.Pointer(&message[0]), len(message), kernel.Int32, receiver, nil)
		case receiver:
			came := make([]int32, len(message))
			look := &lookout{Context: ctx, came: func() bool { return c.PacketCame(prompt) }, done: open}
			err = c.RecvUnder(look, unsafe.Pointer(&came[0]), 16, sender)
			if looked = look.looks; err == nil && fmt.Sprint(came) != fmt.Sprint(message) {
				err = fmt.Errorf("the message is %v, expected %v", came, message)
			}
		}
		for round := 0; round < 3 && err == nil; round++ {
			err = numbers(c, collectives.AllReduce, 100, round, &collectives.CallOptions{Algorithm: "hierarchical_packets"})
		}
		return err
	}, behind)
	if looked != 4 {
		t.Errorf("the packet was looked at %d times beside the message, expected 4", looked)
	}
}

// A packet of the very rank that is to send a message, in its place, ends the job with the
// reason, which names that rank: its packets do not overtake its messages.
func TestPacketInPlaceOfAMessage(t *testing.T) {
	const receiver, culprit = 0, 2
	hosts(t, []string{"a", "a", "b", "b"}, true, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		if err := errors.Join(c.Barrier(nil), c.Communicator().Barrier(ctx)); err != nil {
			return err
		}
		b := unsafe.Pointer(&make([]int32, 100)[0])
		if c.Rank() == receiver {
			err := c.Recv(b, 100, kernel.Int32, culprit, nil)
			if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != culprit {
				return fmt.Errorf("%w: expected ErrInvalid of rank %d", err, culprit)
			}
			for _, what := range []string{"ranks disagree: rank 2: allreduce of 100 i32 sum by hierarchical_packets", "rank 0: a message"} {
				if !strings.Contains(err.Error(), what) {
					return fmt.Errorf("%w: expected it to say %q", err, what)
				}
			}
			return nil
		}
		err := c.AllReduce(b, b, 100, kernel.Int32, kernel.Sum, nil)
		if !errors.Is(err, framework.ErrPeer) && !errors.Is(err, framework.ErrInvalid) {
			return fmt.Errorf("%w: expected what the rank that waits for a message has found", err)
		}
		return nil
	})
}
