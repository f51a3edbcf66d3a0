package xgmi

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/gpulink"
)

// Config holds the transport's options. Take Defaults and change what matters.
type Config struct {
	Shares      []string `help:"Ways to map a peer's memory, best first: legacy-ipc, vmm, memfd. One that is left out is not used."`
	RequireXGMI bool     `option:"require_xgmi" help:"Refuse pairs of GPUs that no xGMI link joins, instead of going through other GPUs or over PCIe."`
}

// shareKinds are those that the option can name. The runtime's older handles come first: memory behind descriptors is uncached
// from HIP 7.0 on alone, and kernels that poll memory which is not would miss what peers write.
var shareKinds = []framework.ShareKind{framework.ShareLegacyIPC, framework.ShareVMM, framework.ShareMemFD}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config { return Config{Shares: gpulink.Names(shareKinds)} }

// Validate says what is wrong with a Config.
func (c Config) Validate() error { return gpulink.CheckShares(c.Shares, shareKinds) }
