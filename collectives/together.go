package collectives

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/coverage"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// together says which ranks share memory, as far as there are kernels that make use of it. It is
// collective.
func together(ctx context.Context, c *comm.Communicator) (comm.Reach, error) {
	switch {
	case !c.Offers(framework.KindMemory):
		return comm.Reach{Apart: fmt.Errorf("%w: none of the configured transports has memory channels", framework.ErrUnsupported)}, nil
	case len(coverage.Of(c)) == 0 && c.Offers(framework.KindPort):
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
