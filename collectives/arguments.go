package collectives

import (
	_ "embed"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

//go:embed kernels/args.h
var argumentsHeader string

// argumentsLayout is the layout of the arguments that this package fills. Images that
// were built for another one are refused.
var argumentsLayout = sync.OnceValue(func() string { return kernel.Layout(argumentsHeader) })
