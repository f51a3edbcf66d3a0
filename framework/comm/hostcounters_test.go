package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/devicetest"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// Each end says for itself where it is signaled. Wherever that is, signals arrive,
// and only those that go to memory of the host, while nothing is outstanding, need no
// stream.
func TestSignalsOfAllKinds(t *testing.T) {
	for _, signalings := range [][2]comm.Signaling{
		{comm.SignalByHost, comm.SignalByHost}, {comm.SignalByHost, comm.SignalOnDevice}, {comm.SignalOnDevice, comm.SignalByStream},
		{comm.SignalOnDevice, comm.SignalOnDevice}, {comm.SignalByStream, comm.SignalByHost},
	} {
		t.Run(fmt.Sprintf("%d and %d", signalings[0], signalings[1]), func(t *testing.T) {
			deviceJob(t, 2, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
				mine, theirs := signalings[c.Rank()], signalings[1-c.Rank()]
				c.Signal(mine)
				err := signalBothDirections(ctx, c, dev, mine != comm.SignalByStream && theirs != comm.SignalOnDevice)
				if err != nil {
					c.Abort(err) // the other one waits
				}
				return err
			})
		})
	}
}

func signalBothDirections(ctx context.Context, c *comm.Communicator, dev *devicetest.Device, direct bool) error {
	_, _, ports, err := portsOf(ctx, c)
	if err != nil {
		return err
	}
	ch := ports[1-c.Rank()]
	h := ch.Handle()
	_, before, _ := dev.Calls()
	for range 50 {
		kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal, 0, 0, 0))
		if !kernelWait(dev, h.Semaphore) {
			return c.Err()
		}
	}
	if _, after, _ := dev.Calls(); (after == before) != direct {
		return fmt.Errorf("50 signals took %d stores of streams: expected none: %v", after-before, direct)
	}
	for range 50 {
		kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal|kernel.TriggerData, 0, 0, 64))
	}
	for range 49 {
		if !kernelWait(dev, h.Semaphore) {
			return c.Err()
		}
	}
	if err := errors.Join(ch.Wait(ctx), c.Barrier(ctx)); err != nil { // the last one by the host
		return err
	}
	if s := c.Channels(); len(s) != 1 || !s[0].Known || s[0].Seen != 100 || s[0].Expected != 100 {
		return fmt.Errorf("%+v: expected 100 signals", s)
	}
	return nil
}

// A device that cannot map memory of the host that others made is signaled as before.
func TestSignalsWithoutTokens(t *testing.T) {
	deviceJob(t, 4, func(ctx context.Context, c *comm.Communicator, dev *devicetest.Device) error {
		if c.Rank() == 2 {
			c.Signal(comm.SignalOnDevice)
		}
		_, _, ports, err := portsOf(ctx, c)
		if err != nil {
			return err
		}
		for lap := range uint64(20) {
			for _, ch := range ports {
				h := ch.Handle()
				kernelPush(dev, h.Fifo, kernelTrigger(h, kernel.TriggerSignal|kernel.TriggerData*(lap%2), uint64(64*c.Rank()), 0, 64*(lap%2)))
			}
			for peer, ch := range ports {
				h := ch.Handle()
				if !kernelWait(dev, h.Semaphore) {
					return c.Err()
				}
				if n := atomic.LoadUint64(dev.Word(h.Semaphore.Inbound)); n < lap+1 || n > lap+2 {
					return fmt.Errorf("%d signals of rank %d, expected %d, or one more", n, peer, lap+1)
				}
			}
		}
		return nil
	})
}

// tokenLiar answers wrongly when it is asked whether it found the tokens.
type tokenLiar struct {
	framework.Bootstrap
	answer []byte
}

func (l *tokenLiar) Send(ctx context.Context, to int, tag framework.Tag, p framework.Parcel) error {
	if len(p.Data) == 1 && len(p.Shares) == 0 {
		p.Data = l.answer
	}
	return l.Bootstrap.Send(ctx, to, tag, p)
}

func TestNonsenseAboutTokens(t *testing.T) {
	for _, answer := range [][]byte{nil, {2}, {1, 1}, {1}} { // the last where nothing was lent
		newRig(2).each(t, func(ctx context.Context, boot *bootstrap.Local) error {
			dev, err := devicetest.Open(boot.Rank())
			if err != nil {
				return err
			}
			defer dev.Close()
			tr, err := comm.NewTransport(ctx, loopback.NewByRank(), "embedded")
			if err != nil {
				return err
			}
			var b framework.Bootstrap = boot
			if boot.Rank() == 1 {
				b = &tokenLiar{boot, answer}
			}
			c, err := comm.New(ctx, b, comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
			if err != nil {
				return err
			}
			defer c.Close()
			if len(answer) == 1 && answer[0] == 1 {
				c.Signal(comm.SignalOnDevice)
			}
			_, _, _, err = portsOf(ctx, c)
			if boot.Rank() == 0 && (!errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "host counters")) {
				return fmt.Errorf("answer % x: %w: expected an error about host counters", answer, err)
			}
			return nil
		})
	}
}

// Tokens travel as descriptors between processes as well. Nothing remains of a closed job.
func TestTokensOverSockets(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	before := memfds(t)
	listener, id, err := bootstrap.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ranks sync.WaitGroup
	for r := range 2 {
		ranks.Go(func() {
			config := bootstrap.Config{ID: id, Rank: r, Size: 2}
			if r == 0 {
				config.Listener = listener
			}
			if err := overSockets(ctx, config); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
	if after := memfds(t); after[0] > before[0] || after[1] > before[1] {
		t.Errorf("descriptors and mappings of memfds: %v before, %v after", before, after)
	}
}

func overSockets(ctx context.Context, config bootstrap.Config) error {
	boot, err := bootstrap.Join(ctx, config)
	if err != nil {
		return err
	}
	defer boot.Close()
	dev, err := devicetest.Open(config.Rank)
	if err != nil {
		return err
	}
	defer dev.Close()
	tr, err := comm.NewTransport(ctx, loopback.NewByRank(), "embedded")
	if err != nil {
		return err
	}
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
	if err != nil {
		return err
	}
	if err = signalBothDirections(ctx, c, dev, true); err != nil {
		c.Abort(err)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	if m, s := dev.Mappings(), dev.Streams(); m != 0 || s != 0 {
		return fmt.Errorf("%d mappings and %d streams are left on the device", m, s)
	}
	return nil
}
