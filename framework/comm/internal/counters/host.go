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

// Signaling says where signals by copy engine go, and who stores them. Only tests
// choose: they compare what each takes.
type Signaling uint8

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

// MapHost makes counters of a peer addressable here and on the device. It closes the shares.
func (k *Counters) MapHost(shares []framework.Share) (t *HostCounters, err error) {
	defer framework.Parcel{Shares: shares}.Close()
	m := framework.Mapping{Role: framework.RolePeer, Peer: framework.NoPeer, Shares: shares, Bytes: hostBytes}
	t = &HostCounters{}
	if t.host, err = k.HostDev.Map(m); err != nil {
		return nil, err
	}
	if t.seen, err = k.Dev.Map(m); err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// MakeHost makes this rank's host counters, if there are none yet. The caller is in a
// call of set-up.
func (k *Counters) MakeHost() error {
	if k.Host.Load() != nil {
		return nil
	}
	made, err := k.HostDev.Alloc(hostBytes)
	if err != nil {
		return err
	}
	t := &HostCounters{host: made}
	shares, err := made.Export()
	if err == nil {
		t.seen, err = Show(k.Dev, shares, hostBytes)
	}
	if err != nil {
		_ = t.Close()
		return err
	}
	k.Host.Store(t)
	return nil
}

// LendHost returns what peers find this rank's host counters by; nothing if its device
// cannot see memory of the host. The first call makes them. The caller is in a
// call of set-up.
func (k *Counters) LendHost() ([]framework.Share, error) {
	if k.Signaling == SignalOnDevice {
		return nil, nil
	}
	if err := k.MakeHost(); err != nil {
		return nil, err
	}
	all, err := k.Host.Load().host.Export()
	if err != nil {
		return nil, err
	}
	var shares []framework.Share
	for _, s := range all {
		if s.Kind == framework.ShareMemFD { // the only one that a device can see
			shares = append(shares, s)
		} else {
			s.Close()
		}
	}
	return shares, nil
}
