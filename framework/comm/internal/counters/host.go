package counters

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
)

// HostCounters are semaphore counters in memory of the host, for port channels that ranks
// drive by copy engine: the peer's proxy stores a signal there itself while its
// stream has nothing to do, and kernels of this rank poll it over the bus. The same
// words serve where this rank's forwarder raises semaphores and cannot store on the device.
// They have the numbers of the counters on the device, which remain for memory channels, and
// for peers on other hosts.
type HostCounters struct {
	host device.Memory // as this process finds them
	seen device.Memory // as the device does
}

const hostBytes = Stride * Max

// Signaling says where signals by copy engine go, and which side stores them. Only tests choose:
// they compare what each takes.
type Signaling uint8

// Ways of signals by copy engine.
const (
	SignalByHost   Signaling = iota // to memory of the host, by the host while nothing is outstanding
	SignalByStream                  // to memory of the host, always by the stream
	SignalOnDevice                  // to memory of the device, by the stream
)

// HostCountersAt are counters at memory of the host, and as the device sees it.
func HostCountersAt(host, seen device.Memory) *HostCounters {
	return &HostCounters{host: host, seen: seen}
}

// Word is the counter of a semaphore. Without host counters it is none.
func (t *HostCounters) Word(i int) (w proxy.Word) {
	if t == nil {
		return w
	}
	offset := uintptr(i * Stride)
	return proxy.Word{Host: (*uint64)(Pointer(t.host.Addr() + offset)), Device: t.seen.Addr() + offset}
}

// Close unmaps and frees them.
func (t *HostCounters) Close() error {
	var first error
	for _, m := range []device.Memory{t.seen, t.host} {
		if m == nil {
			continue
		}
		if err := m.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Show makes memory of the host addressable on a device. It closes the shares.
func Show(dev device.Device, shares []framework.Share, bytes uint64) (device.Memory, error) {
	m := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: bytes}
	defer framework.Attachment{Mappings: []framework.Mapping{m}}.Close()
	return dev.Map(m)
}
