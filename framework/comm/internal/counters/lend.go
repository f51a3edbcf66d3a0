package counters

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

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

// MapInbox maps words that the host reads, whatever the rank's device.
func (k *Counters) MapInbox(m framework.Mapping) (device.Memory, error) {
	if k.HostDev == nil {
		return k.Dev.Map(m)
	}
	return k.HostDev.Map(m)
}
