package collectives

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
)

// Layouts lists the layouts (kernel.Layout) of the arguments that this package passes to
// kernels. An image of another layout is not loaded; plugins get these.
func Layouts() []string { return []string{kernelargs.Layout(), kernelargs.ExchangeLayout()} }
