package verbstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	cpu "github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// OneByOne has two ranks leave, the second long after the first: it finds no adapter at the
// other end, where signals are counted, and has neither an error nor to wait for that.
func (s Suite) OneByOne(t *testing.T) {
	s.needsDevice(t)
	variants := map[string]func(t *testing.T) framework.Transport{"embedded": func(t *testing.T) framework.Transport { return s.embedded(t) }}
	if s.Wrap != nil {
		variants["over the wire"] = func(t *testing.T) framework.Transport { return s.Wrap(t, s.embedded(t)) }
	}
	for name, open := range variants {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			gone := make(chan struct{})
			var ranks sync.WaitGroup
			for _, boot := range bootstrap.InProcess(2) {
				transport := open(t)
				ranks.Go(func() {
					defer boot.Close()
					if err := leave(ctx, boot, transport, gone); err != nil {
						t.Errorf("rank %d: %v", boot.Rank(), err)
					}
				})
			}
			ranks.Wait()
		})
	}
}

func leave(ctx context.Context, boot framework.Bootstrap, behind framework.Transport, gone chan struct{}) (err error) {
	const signals = 5
	dev, err := cpu.Open()
	if err != nil {
		return err
	}
	defer dev.Close()
	transport, err := comm.NewTransport(ctx, behind, "")
	if err != nil {
		return err
	}
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{transport}, Facts: framework.Facts{NUMA: -1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := c.Alloc(1 << 12)
	if err != nil {
		return err
	}
	ch, err := c.PortChannel(ctx, 1-c.Rank(), m, m)
	if err != nil {
		return err
	}
	if c.Rank() == 1 {
		defer close(gone)
		for range signals {
			if err := ch.Wait(ctx); err != nil {
				return err
			}
		}
		return c.Close()
	}
	for range signals {
		if err := ch.Signal(); err != nil {
			return err
		}
	}
	select {
	case <-gone:
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	for range signals { // such as to give slots back that no rank will use
		if err := ch.Signal(); err != nil {
			return err
		}
		kernelSignal(ch.Handle())
	}
	if err := errors.Join(ch.Close(), c.Err(), c.Close()); err != nil {
		return err
	}
	if took := time.Since(start); took > time.Second { // a tenth of it, emulated; adapters that are not answered take longer
		return fmt.Errorf("to close took %v", took)
	}
	return nil
}

// kernelSignal does the same as PortChannel.signal, by a kernel on the host, which does not
// know which ranks have left.
func kernelSignal(h kernel.PortChannelHandle) {
	at := func(addr uintptr) *uint64 { return *(**uint64)(unsafe.Pointer(&addr)) }
	pos := atomic.AddUint64(at(h.Fifo.Head), 1) - 1 // there is room
	slot := h.Fifo.Triggers + uintptr(pos&uint64(h.Fifo.Mask))*16
	atomic.StoreUint64(at(slot), 0)
	t := kernel.TriggerFields{Kind: kernel.TriggerSignal, Slot: h.SemaphoreSlot}.Pack()
	atomic.StoreUint64(at(slot+8), t.Snd|(pos>>h.Fifo.Shift&1^1)<<63)
}
