package nvls

import (
	"fmt"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Config holds the transport's options. Take Defaults and change what matters.
type Config struct {
	Enable    bool `help:"Use the switch. Off: the transport is not available, and nothing asks the driver for multicast."`
	OldDriver bool `option:"old_driver" help:"Also use drivers before CUDA 12.6, whose compiler made faulty code of the switch's barrier."`
}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config { return Config{Enable: true} }

const (
	factMulticast = topo.FactMulticast
	factDriver    = topo.FactDriver

	// leastDriver is the first whose compiler is known to translate the barrier of the switch rightly.
	leastDriver = 12060
)

// lacking says why a rank has no switch, and what to do; "" if it has one.
func (t *Transport) lacking(f framework.Facts) string {
	if !t.config.Enable {
		return "the switch is turned off by transport.nvls.enable"
	}
	if f.Other[topo.FactMemory] == "host" {
		return "memory of the host cannot be bound to a multicast object: expected gpu_memory: device"
	}
	switch has := f.Other[factMulticast]; has {
	case topo.MulticastYes:
	case "":
		return "the rank's device says nothing about multicast: expected an NVIDIA GPU of compute capability 9.0 or later behind an NVSwitch"
	default:
		return has
	}
	if v, err := strconv.Atoi(f.Other[factDriver]); err != nil || v < leastDriver && !t.config.OldDriver {
		return fmt.Sprintf("the driver is for CUDA %s: expected %s or later, or the option old_driver", release(v), release(leastDriver))
	}
	return ""
}

// release spells the number of a driver's version: 12060 is 12.6.
func release(v int) string {
	if v <= 0 {
		return "of an unknown version"
	}
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}
