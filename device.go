package mscclpp

import (
	"fmt"
	"log/slog"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
	"github.com/mscclpp-go/mscclpp/framework/gpu/host"
)

// chooseDevice settles which device is meant by the configuration or, if that is
// silent, by the program. auto takes a GPU if one can be used.
func chooseDevice(configured, wanted string, getenv func(string) string, log *slog.Logger) (framework.Device, error) {
	name := configured
	if name == "" {
		name = wanted
	}
	switch name {
	case "", "host":
		return framework.Host, nil
	case "auto", "cuda":
	default:
		return framework.ParseDevice(name)
	}
	return framework.Host, nil
}

// prefault is how much of each shared allocation is given its pages at start: what
// small collectives use. The rest gets them on first use; with several ranks on a
// few processors, filling all of it would take most of the start.
const prefault = 1 << 20

func openDevice(d framework.Device) (gpu.Device, error) {
	switch d.Type {
	case "host":
		return host.Open(host.Prefault(prefault))
	}
	return nil, fmt.Errorf("%w: device %v: expected host or cuda", framework.ErrUnsupported, d)
}
