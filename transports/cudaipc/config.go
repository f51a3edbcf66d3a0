package cudaipc

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/gpulink"
)

// Config holds the transport's options. Take Defaults and change what matters.
type Config struct {
	Shares        []string `help:"Ways to map a peer's memory, best first: vmm, fabric, legacy-ipc, memfd. One that is left out is not used."`
	RequireNVLink bool     `option:"require_nvlink" help:"Refuse pairs of GPUs that are not joined by NVLink, instead of going over PCIe."`
	Fabric        bool     `help:"Also reach GPUs of other hosts in the same NVLink network. Needs IMEX, and gpu_memory: fabric."`
}

// shareKinds are those that the option can name. Within one process there is nothing
// to choose: its own shares are always used.
var shareKinds = []framework.ShareKind{framework.ShareVMM, framework.ShareFabric, framework.ShareLegacyIPC, framework.ShareMemFD}

// Defaults are the values of a Config without settings of the user.
func (Config) Defaults() Config { return Config{Shares: gpulink.Names(shareKinds)} }

// Validate says what is wrong with a Config.
func (c Config) Validate() error {
	if err := gpulink.CheckShares(c.Shares, shareKinds); err != nil {
		return err
	}
	if c.Fabric && !slices.Contains(c.Shares, string(framework.ShareFabric)) {
		return framework.BadOption("fabric", "fabric is on, and shares %v leave out fabric", c.Shares)
	}
	return nil
}
