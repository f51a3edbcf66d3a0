package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// withoutKernels is a transport of a vendor that has written no kernels: it has channels of
// all kinds, and nothing that runs over shared memory.
type withoutKernels struct{ framework.Transport }

func (t withoutKernels) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.Transport.Describe(ctx)
	d.Kernels, d.Images = nil, nil
	return d, err
}

func (t withoutKernels) NewProxy(ctx context.Context) (framework.Proxy, error) {
	return t.Transport.(framework.Proxier).NewProxy(ctx)
}

// Ranks that share memory, of which no kernel makes use, perform all collectives over port
// channels, as ranks do that have nothing else.
func TestMemoryWithoutKernels(t *testing.T) {
	bare := func(_ int, plain framework.Transport) framework.Transport { return withoutKernels{plain} }
	for _, layout := range []string{"a", "aa", "aaa", "aab"} {
		t.Run(layout, func(t *testing.T) {
			at := strings.Split(layout, "")
			across := func(r int, plain framework.Transport) framework.Transport {
				return wire{portsOnly{withoutKernels{plain}}, framework.SignalAtomic}
			}
			local{at: at, offers: []offer{bare, across}, together: true}.run(t, func(ctx context.Context, world *comm.Communicator) error {
				c, err := collectives.New(ctx, world, collectives.Options{})
				if err != nil {
					return err
				}
				b := buffers{make([]byte, 1<<20), make([]byte, 1<<20)}
				for i, kind := range collectivetest.Kinds() {
					if names := c.Algorithms(kind); !slices.Equal(names, []string{"ports"}) {
						err = errors.Join(err, fmt.Errorf("algorithms of %v: %q, expected ports", kind, names))
					}
					err = errors.Join(err, trial{Kind: kind, Count: 5_003, Type: kernel.Float32, Op: kernel.Sum, Root: len(at) - 1}.Run(b.of(c), uint64(i)))
				}
				return errors.Join(err, c.Barrier(nil), c.Close())
			})
		})
	}
}
