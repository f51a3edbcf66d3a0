package cuda

import (
	"fmt"
	"log/slog"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
)

// code is the machine code of images that a device may load in their place.
type code struct {
	library *machinecode.Library
	log     *slog.Logger
}

// openCode reads the containers. One that cannot be read is reported and passed over: its
// images are compiled by the driver.
func openCode(o *options, dev framework.Device, major, minor int) *code {
	c := &code{log: o.log}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	library, err := machinecode.Open(o.machineCode, major, minor)
	if err != nil {
		c.log.Warn("machine code of kernels is passed over, and the driver compiles them", "device", dev, "reason", err)
	} else if library.Empty() {
		c.log.Info("there is no machine code of kernels for this GPU, and the driver compiles them", "device", dev, "capability", fmt.Sprintf("%d.%d", major, minor))
	}
	c.library = library
	return c
}

func (c *code) empty() bool { return c.library.Empty() }
