package collectives

import (
	"context"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// together says who shares memory, as far as there are kernels that make use of it. It is
// collective.
func together(ctx context.Context, c *comm.Communicator) (comm.Reach, error) {
	switch {
	case !c.Offers(framework.KindMemory):
		return comm.Reach{Apart: fmt.Errorf("%w: none of the configured transports has memory channels", framework.ErrUnsupported)}, nil
	case len(withKernels(c)) == 0 && c.Offers(framework.KindPort):
		return comm.Reach{Apart: errNoKernels}, nil
	}
	switch {
	case c.Size() == 1:
		return comm.Reach{}, nil
	case tooMany(c):
		return dividedHost(c.Size()), nil // the parts see for themselves: links of all pairs would cost minutes
	}
	return c.ReachAll(ctx)
}

var errNoKernels = fmt.Errorf("%w: none of the configured transports has kernels for collectives over memory channels", framework.ErrUnsupported)

// withKernels lists the collectives for which the transports have kernels over shared
// memory, of which SendRecv stands for all messages: the same on all ranks, since they are settings.
func withKernels(c *comm.Communicator) (list []Collective) {
	found := engine.Discover(c.Kernels(), min(c.Size(), kernelargs.MaxRanks)) // more of them count as several hosts
	for k := AllReduce; k < AllToAllV; k++ {
		if slices.ContainsFunc(found.Collectives, func(x *engine.Kernel) bool { return x.Kind == k }) {
			list = append(list, k)
		}
	}
	if len(found.Messages) > 0 {
		list = append(list, SendRecv)
	}
	return list
}

// withoutKernels lists the others.
func withoutKernels(c *comm.Communicator) (list []Collective) {
	with := withKernels(c)
	for k := AllReduce; k < collectives; k++ {
		if (k < AllToAllV || k == SendRecv) && !slices.Contains(with, k) {
			list = append(list, k)
		}
	}
	return list
}
