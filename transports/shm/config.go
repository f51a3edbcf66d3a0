package shm

import (
	"runtime"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Config holds the transport's options. Take Defaults and change what matters.
type Config struct {
	Images     string        `help:"Folder of the kernel images. Empty: mscclpp-transport-shm.kernels beside the program."`
	DrainSpin  time.Duration `help:"How long an idle proxy polls before it starts to yield its core."`
	DrainYield time.Duration `help:"How long an idle proxy yields its core before it sleeps until it is woken."`
	DrainCPU   int           `help:"Core on which proxies run; -1 leaves it to the system."`
}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config {
	return Config{DrainSpin: 20 * time.Microsecond, DrainYield: time.Millisecond, DrainCPU: -1}
}

// Validate says what is wrong with a Config.
func (c Config) Validate() error {
	const most = time.Minute
	switch {
	case c.DrainSpin < 0 || c.DrainSpin > most:
		return framework.BadOption("drain_spin", "drain_spin %v: expected 0 to %v", c.DrainSpin, most)
	case c.DrainYield < 0 || c.DrainYield > most:
		return framework.BadOption("drain_yield", "drain_yield %v: expected 0 to %v", c.DrainYield, most)
	case c.DrainCPU < -1 || c.DrainCPU >= maxCPUs:
		return framework.BadOption("drain_cpu", "drain_cpu %d: expected -1, or a core below %d (this process may use %d)", c.DrainCPU, maxCPUs, runtime.NumCPU())
	}
	return nil
}

// maxCPUs is how many cores a cpu_set_t of the C library can name.
const maxCPUs = 1024
