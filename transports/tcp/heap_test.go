package tcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	cpu "github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/plugins/plugintest"
	"github.com/mscclpp-go/mscclpp/transports/tcp"
)

// Memory of Go's heap has no descriptor. A rank that drives its streams reads and writes
// it in place. A plugin cannot: what is put from there is copied, and nobody puts to there.
func TestMemoryOfTheHeap(t *testing.T) {
	for drive, whole := range map[string]bool{"rank": true, "plugin": false} {
		t.Run(drive, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			config := tcp.Config{}.Defaults()
			config.Drive = drive
			var ranks sync.WaitGroup
			for _, boot := range bootstrap.InProcess(2) {
				behind := plugintest.Wrap(t, embedded(t, config))
				ranks.Go(func() {
					defer boot.Close()
					if err := heapRank(ctx, boot, behind, whole); err != nil {
						t.Errorf("rank %d: %v", boot.Rank(), err)
					}
				})
			}
			ranks.Wait()
		})
	}
}

func heapRank(ctx context.Context, boot framework.Bootstrap, behind framework.Transport, whole bool) error {
	const size = 3<<20 + 5
	dev, err := cpu.Open()
	if err != nil {
		return err
	}
	defer dev.Close()
	transport, err := comm.NewTransport(ctx, behind, "behind gRPC")
	if err != nil {
		return err
	}
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{transport}, Facts: framework.Facts{NUMA: -1}})
	if err != nil {
		return err
	}
	defer c.Close()
	src, dst := make([]byte, size), make([]byte, size)
	own, err := c.Register(cpu.Wrap(uintptr(unsafe.Pointer(unsafe.SliceData(src))), size))
	if err != nil {
		return err
	}
	open, err := c.Register(cpu.Wrap(uintptr(unsafe.Pointer(unsafe.SliceData(dst))), size))
	if err == nil && !whole {
		open, err = c.Alloc(size)
		dst = device.Bytes(open.Memory)[:size]
	}
	if err != nil {
		return err
	}
	ch, err := c.PortChannel(ctx, 1-c.Rank(), own, open)
	if err != nil {
		return err
	}
	want := make([]byte, size)
	for round := range 3 {
		for i := range src {
			src[i], want[i] = byte(i*7+round+c.Rank()), byte(i*7+round+1-c.Rank())
		}
		if err := errors.Join(ch.PutWithSignal(0, 0, size), ch.Flush(ctx), ch.Wait(ctx)); err != nil {
			return err
		}
		if !bytes.Equal(dst, want) {
			return fmt.Errorf("round %d: what is there behind the signal is not what was put", round)
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	if whole {
		return c.Barrier(ctx)
	}
	_, err = c.PortChannel(ctx, 1-c.Rank(), own, own)
	if err == nil || !strings.Contains(err.Error(), "memory from Alloc") {
		return fmt.Errorf("%w: expected that memory from Alloc is asked for", err)
	}
	return nil
}
