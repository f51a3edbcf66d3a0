package setup

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Finders are FindDevices of each back end that the configuration names.
func Finders(cfg *config.Config, log *slog.Logger) (all []topo.Finder) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Devices)) {
		all = append(all, func() ([]topo.GPU, error) { return FindDevices(name, cfg, log) })
	}
	return all
}

// CountDevices says how many devices of a type this process sees by a back end, which it loads. ErrUnavailable: there is none.
func CountDevices(typ string, b config.DeviceBackend, log *slog.Logger) (int, error) {
	back, err := backend(typ, b, log)
	if err != nil {
		return 0, err
	}
	k := kind{name: typ, count: back.Count}
	return k.visible()
}

// FindDevices lists the devices of a type, which the configuration names. It loads the back end, and opens its devices for as long
// as it looks.
func FindDevices(name string, cfg *config.Config, log *slog.Logger) (gpus []topo.GPU, err error) {
	k, err := kindOf(name, cfg, log)
	if err != nil {
		return nil, err
	}
	n, err := k.count()
	for i := 0; i < n && err == nil; i++ {
		var dev device.Device
		if dev, err = k.open(i, ""); err != nil {
			break
		}
		gpus = append(gpus, described(dev))
		err = errors.Join(err, dev.Close())
	}
	return gpus, err
}

// described returns the identity of a device and its links, as its table gives them.
func described(dev device.Device) topo.GPU {
	g := itself(dev)
	if archs := dev.Info().Archs; len(archs) > 0 {
		g.Arch = archs[0]
	}
	if d, ok := dev.(interface {
		MemoryInfo() (free, total uint64, err error)
	}); ok {
		if _, total, err := d.MemoryInfo(); err == nil {
			g.Bytes = total
		}
	}
	if d, ok := dev.(device.Linked); ok {
		_, list, _ := d.Links()
		g.Links = bundles(list)
	}
	return g
}

// bundles are links as topo has them: those that lead to a switch once, whatever devices are behind it.
func bundles(list []framework.DeviceLink) (out []topo.Link) {
	for _, l := range list {
		peer := l.Peer
		if l.Switch {
			peer = topo.Switch
		}
		if !slices.ContainsFunc(out, func(o topo.Link) bool { return o.Peer == peer }) {
			out = append(out, topo.Link{Peer: peer, Count: l.Count, Version: l.Version, Kind: l.Kind})
		}
	}
	return out
}
