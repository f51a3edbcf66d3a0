package comm

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// control is the memory that a communicator itself needs on one rank:
//
//   - words: the wait control, in host memory that kernels can read;
//   - inbound: semaphore counters that peers raise, registered with transports;
//   - tokens: those that peers raise by copy engine, or the forwarder, in host memory that kernels can read;
//   - expected: the private counterparts, in device memory.
//
// Each counter has a cache line of its own, so that a signal to one channel does
// not disturb the waiter of another.
type control struct {
	dev        device.Device
	hostDev    device.Device // nil when dev is the host
	hostMem    device.Memory
	hostMap    device.Memory // hostMem as the device sees it; nil when dev is the host
	words      *kernel.WaitControl
	deviceAddr uintptr
	engine     queue // of a device that has one

	inbound  *Memory
	expected device.Memory

	tokens    atomic.Pointer[tokens] // nil until a link is driven by copy engine, or has an inbox without a view
	signaling signaling

	semaphores semaphores
}

const (
	semaphoreStride = 128  // two lines: the adjacent-line prefetcher pairs them
	semaphoreMax    = 4096 // counters of one communicator on one rank
	controlBytes    = 4096
	controlSpace    = 1 << 16 // on a device: with the words that its streams write
)

func newControl(dev device.Device) (*control, error) {
	k := &control{dev: dev}
	ok := false
	defer func() {
		if !ok {
			_ = k.close(context.Background()) // nothing is registered
		}
	}()
	hostDev, err := k.openHost()
	if err != nil {
		return nil, err
	}
	bytes := uint64(controlBytes)
	if k.hostDev != nil {
		bytes = controlSpace
	}
	if k.hostMem, err = hostDev.Alloc(bytes); err != nil {
		return nil, fmt.Errorf("wait control: %w", err)
	}
	k.words = (*kernel.WaitControl)(pointer(k.hostMem.Addr()))
	k.deviceAddr = k.hostMem.Addr()
	if k.hostDev != nil {
		if err := k.mapHost(); err != nil {
			return nil, err
		}
	}
	inbound, err := dev.Alloc(semaphoreStride * semaphoreMax)
	if err != nil {
		return nil, fmt.Errorf("semaphores: %w", err)
	}
	k.inbound = &Memory{Memory: inbound, owned: true}
	if k.expected, err = dev.Alloc(semaphoreStride * semaphoreMax); err != nil {
		return nil, fmt.Errorf("semaphores: %w", err)
	}
	k.semaphores.reset = k.balance
	if err := k.openQueue(); err != nil {
		return nil, err
	}
	ok = true
	return k, nil
}

func (k *control) openHost() (device.Device, error) {
	if k.dev.Info().Device == framework.Host {
		return k.dev, nil
	}
	h, err := host.Open()
	if err != nil {
		return nil, fmt.Errorf("host memory: %w", err)
	}
	k.hostDev = h
	return h, nil
}

// mapHost makes the wait control visible to a device that is not the host.
func (k *control) mapHost() error {
	shares, err := k.hostMem.Export()
	if err != nil {
		return fmt.Errorf("wait control: %w", err)
	}
	if k.hostMap, err = show(k.dev, shares, k.hostMem.Bytes()); err != nil {
		return fmt.Errorf("wait control: %w", err)
	}
	k.deviceAddr = k.hostMap.Addr()
	return nil
}

// show makes memory of the host addressable on a device. It closes the shares.
func show(dev device.Device, shares []framework.Share, bytes uint64) (device.Memory, error) {
	m := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: bytes}
	defer framework.Attachment{Mappings: []framework.Mapping{m}}.Close()
	return dev.Map(m)
}

// setSpin tells waits on the host how long to poll before they give way: not at
// all when ranks share cores.
func (k *control) setSpin(localRanks, cpus int) {
	if localRanks > cpus {
		k.words.SpinNS = 1
	}
}

// balance prepares a counter for its next use: no signal that came is still to be
// waited for. On the host what is expected becomes what was seen. On a device both
// become 0, as they were at first: who signals by copy engine has to know where a
// counter starts. Nobody else writes them then: the peer has said that it does not
// raise the counter any more, and had waited for its own streams before. A counter
// that cannot be reset is not used again.
func (k *control) balance(i int) bool {
	if k.hostDev != nil {
		if w := k.tokens.Load().word(i); w.Host != nil {
			atomic.StoreUint64(w.Host, 0)
		}
		return k.engine.zero(k.inboundAddr(i), k.expectedAddr(i))
	}
	seen := atomic.LoadUint64((*uint64)(pointer(k.inboundAddr(i))))
	atomic.StoreUint64((*uint64)(pointer(k.expectedAddr(i))), seen)
	return true
}

// clear is balance for counters that are compared with a word elsewhere, which
// starts at 0, as those of a device do anyway.
func (k *control) clear(i int) {
	if k.hostDev == nil {
		atomic.StoreUint64((*uint64)(pointer(k.expectedAddr(i))), 0)
	}
}

func (k *control) inboundAddr(i int) uintptr  { return k.inbound.Addr() + uintptr(i*semaphoreStride) }
func (k *control) expectedAddr(i int) uintptr { return k.expected.Addr() + uintptr(i*semaphoreStride) }

func (k *control) close(ctx context.Context) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	keep(k.engine.close())
	if t := k.tokens.Load(); t != nil {
		keep(t.close())
	}
	if k.inbound != nil {
		keep(k.inbound.shut(ctx)) // with its registrations
	}
	for _, m := range []device.Memory{k.hostMap, k.expected, k.hostMem} {
		if m != nil {
			keep(m.Close())
		}
	}
	if k.hostDev != nil {
		keep(k.hostDev.Close())
	}
	return first
}

// pointer turns the address of mapped memory, which Go does not manage, into a
// pointer.
func pointer(addr uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}
