// Package counters holds the words of a communicator on one rank by which ranks, kernels
// and the host tell each other how far they are: the wait control and the counters of
// semaphores.
package counters

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// Counters is the memory that a communicator itself needs on one rank:
//
//   - Words: the wait control, in host memory that kernels can read;
//   - Inbound: semaphore counters that peers raise, registered with transports;
//   - Host: those that peers raise by copy engine, or the forwarder, in host memory that kernels can read;
//   - expected: the private counterparts, in device memory.
//
// Each counter has a cache line of its own, so that a signal to one channel does
// not disturb the waiter of another.
type Counters struct {
	Dev        device.Device
	HostDev    device.Device // nil when dev is the host
	hostMem    device.Memory
	hostMap    device.Memory // hostMem as the device sees it; nil when dev is the host
	Words      *kernel.WaitControl
	Ring       *kernel.RecordRing // behind Words, for kernels of the host; nil: of a GPU
	Records    *observe.Kernels   // those of kernels; nil: there are none
	DeviceAddr uintptr
	Queue      Queue // of a device that has one

	Inbound  *memory.Memory
	expected device.Memory

	Host      atomic.Pointer[HostCounters] // nil until a link is driven by copy engine, or has an inbox without a view
	Signaling Signaling

	Pool Pool
}

const (
	controlBytes = 4096
	controlSpace = 1 << 16 // on a device: with the words that its streams write
)

// New allocates the counters of a communicator on a device.
func New(dev device.Device) (*Counters, error) {
	k := &Counters{Dev: dev}
	ok := false
	defer func() {
		if !ok {
			_ = k.Close(context.Background()) // nothing is registered
		}
	}()
	hostDev, err := k.openHost()
	if err != nil {
		return nil, err
	}
	bytes := uint64(controlBytes)
	if k.HostDev != nil {
		bytes = controlSpace
	}
	if k.hostMem, err = hostDev.Alloc(bytes); err != nil {
		return nil, fmt.Errorf("wait control: %w", err)
	}
	k.Words = (*kernel.WaitControl)(Pointer(k.hostMem.Addr()))
	k.DeviceAddr = k.hostMem.Addr()
	if k.HostDev == nil {
		k.Ring = (*kernel.RecordRing)(Pointer(k.hostMem.Addr() + unsafe.Sizeof(*k.Words)))
	} else {
		if err := k.mapHost(); err != nil {
			return nil, err
		}
	}
	inbound, err := dev.Alloc(Stride * Max)
	if err != nil {
		return nil, fmt.Errorf("semaphores: %w", err)
	}
	k.Inbound = memory.New(inbound, true)
	if k.expected, err = dev.Alloc(Stride * Max); err != nil {
		return nil, fmt.Errorf("semaphores: %w", err)
	}
	k.Pool.reset = k.balance
	if err := k.openQueue(); err != nil {
		return nil, err
	}
	ok = true
	return k, nil
}

func (k *Counters) openHost() (device.Device, error) {
	if k.Dev.Info().Device == framework.Host {
		return k.Dev, nil
	}
	h, err := host.Open()
	if err != nil {
		return nil, fmt.Errorf("host memory: %w", err)
	}
	k.HostDev = h
	return h, nil
}

// mapHost makes the wait control visible to a device that is not the host.
func (k *Counters) mapHost() error {
	shares, err := k.hostMem.Export()
	if err != nil {
		return fmt.Errorf("wait control: %w", err)
	}
	if k.hostMap, err = Show(k.Dev, shares, k.hostMem.Bytes()); err != nil {
		return fmt.Errorf("wait control: %w", err)
	}
	k.DeviceAddr = k.hostMap.Addr()
	return nil
}

// SetSpin tells waits on the host how long to poll before they give way: not at
// all when ranks share cores.
func (k *Counters) SetSpin(localRanks, cpus int) {
	if localRanks > cpus {
		k.Words.SpinNS = 1
	}
}

// balance prepares a counter for its next use: no signal that came is still to be waited for. On
// the host what is expected becomes what was seen. On a device both become 0, as they were at
// first: a rank that signals by copy engine has to know where a counter starts. The peer does
// not write them then: it has said that it does not raise the counter any more, and had waited for
// its own streams before. A counter that cannot be reset is not used again.
func (k *Counters) balance(i int) bool {
	if k.HostDev != nil {
		if w := k.Host.Load().Word(i); w.Host != nil {
			atomic.StoreUint64(w.Host, 0)
		}
		return k.Queue.zero(k.InboundAddr(i), k.ExpectedAddr(i))
	}
	seen := atomic.LoadUint64((*uint64)(Pointer(k.InboundAddr(i))))
	atomic.StoreUint64((*uint64)(Pointer(k.ExpectedAddr(i))), seen)
	return true
}

// Clear is balance for counters that are compared with a word elsewhere, which
// starts at 0, as those of a device do anyway.
func (k *Counters) Clear(i int) {
	if k.HostDev == nil {
		atomic.StoreUint64((*uint64)(Pointer(k.ExpectedAddr(i))), 0)
	}
}

// InboundAddr is the address of the counter i that a peer raises.
func (k *Counters) InboundAddr(i int) uintptr { return k.Inbound.Addr() + uintptr(i*Stride) }

// ExpectedAddr is the address of the private counterpart of counter i.
func (k *Counters) ExpectedAddr(i int) uintptr { return k.expected.Addr() + uintptr(i*Stride) }

// Close ends the queue, and frees all counters with their registrations.
func (k *Counters) Close(ctx context.Context) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	k.Records.Close()
	keep(k.Queue.close())
	if t := k.Host.Load(); t != nil {
		keep(t.Close())
	}
	if k.Inbound != nil {
		keep(memory.Shut(ctx, k.Inbound)) // with its registrations
	}
	for _, m := range []device.Memory{k.hostMap, k.expected, k.hostMem} {
		if m != nil {
			keep(m.Close())
		}
	}
	if k.HostDev != nil {
		keep(k.HostDev.Close())
	}
	return first
}

// openQueue gives a device with an engine a queue.
func (k *Counters) openQueue() error {
	engine, ok := k.Dev.(device.Engine)
	if !ok || k.HostDev == nil {
		return nil
	}
	q := &k.Queue
	q.Engine, q.space = engine, words{k.hostMem.Addr(), k.DeviceAddr, controlSpace}
	var words [3]proxy.Word
	for i := range words {
		var err error
		if words[i], err = q.Word(); err != nil {
			return err
		}
	}
	for i, w := range words[1:] {
		q.found[i], q.at[i] = w.Host, w.Device
	}
	var err error
	q.Lane, err = proxy.NewLane(engine, framework.NoPeer, words[0])
	return err
}
