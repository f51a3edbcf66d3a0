// Package kernelargs has the arguments of the kernels for collectives: the Go mirrors of the structures that
// collectives/kernels/args.h and exchange_args.h define in C++, how scratch memory is divided, and the words
// through which kernels and hosts tell each other of calls.
package kernelargs

import (
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives/kernels"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Layout is the layout of the arguments that this package describes. Images that were built for another one
// are refused.
var Layout = sync.OnceValue(func() string { return kernel.Layout(kernels.Arguments) })

// ExchangeLayout is that of the kernels between hosts.
var ExchangeLayout = sync.OnceValue(func() string { return kernel.Layout(kernels.Arguments, kernels.ExchangeArguments) })
