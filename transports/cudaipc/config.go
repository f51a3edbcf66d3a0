package cudaipc

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
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
func (Config) Defaults() Config {
	c := Config{}
	for _, k := range shareKinds {
		c.Shares = append(c.Shares, string(k))
	}
	return c
}

// Validate says what is wrong with a Config.
func (c Config) Validate() error {
	if len(c.Shares) == 0 {
		return framework.BadOption("shares", "shares: the list is empty: expected some of %v", shareKinds)
	}
	for i, s := range c.Shares {
		if !slices.Contains(shareKinds, framework.ShareKind(s)) {
			return framework.BadOption("shares", "shares: %q: expected some of %v", s, shareKinds)
		}
		if slices.Contains(c.Shares[:i], s) {
			return framework.BadOption("shares", "shares: %q is listed twice", s)
		}
	}
	if c.Fabric && !c.uses(framework.ShareFabric) {
		return framework.BadOption("fabric", "fabric is on, and shares %v leave out fabric", c.Shares)
	}
	return nil
}

func (c Config) uses(k framework.ShareKind) bool { return slices.Contains(c.Shares, string(k)) }

// order is the place of a kind in the list of preferences.
func (c Config) order(k framework.ShareKind) int { return slices.Index(c.Shares, string(k)) }
