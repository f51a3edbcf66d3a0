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

// Finders list the devices of the back ends that the configuration names. Each loads one, and opens its devices for as long as
// it looks.
func Finders(cfg *config.Config, log *slog.Logger) (all []topo.Finder) {
	for _, name := range slices.Sorted(maps.Keys(cfg.Devices)) {
		all = append(all, func() ([]topo.GPU, error) { return find(name, cfg, log) })
	}
	return all
}

func find(name string, cfg *config.Config, log *slog.Logger) (gpus []topo.GPU, err error) {
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
