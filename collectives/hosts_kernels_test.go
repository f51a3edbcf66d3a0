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

// fewKernels is a transport of a vendor that has written kernels for some collectives.
type fewKernels struct {
	framework.Transport
	kinds []string // in images
}

func (t fewKernels) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.Transport.Describe(ctx)
	d.Kernels = slices.DeleteFunc(slices.Clone(d.Kernels), func(k framework.KernelInfo) bool { return !slices.Contains(t.kinds, k.Collective) })
	return d, err
}

func (t fewKernels) NewProxy(ctx context.Context) (framework.Proxy, error) {
	return t.Transport.(framework.Proxier).NewProxy(ctx)
}

func (t fewKernels) Image(ctx context.Context, id string) ([]byte, error) {
	return t.Transport.(framework.Imager).Image(ctx, id)
}

// Where there are kernels for some collectives, they serve those, and port channels the others: also of the ranks of
// a host among several.
func TestKernelsForSomeCollectives(t *testing.T) {
	for kinds, over := range map[string][]collectives.Collective{
		"allreduce": {collectives.AllGather, collectives.ReduceScatter, collectives.Broadcast, collectives.Reduce, collectives.AllToAll, collectives.Barrier, collectives.Gather, collectives.Scatter},
		"transfers": {collectives.AllReduce, collectives.AllGather, collectives.ReduceScatter, collectives.Broadcast, collectives.Reduce, collectives.AllToAll, collectives.Barrier},
	} {
		for _, layout := range []string{"aa", "aaa", "aab"} {
			t.Run(kinds+" "+layout, func(t *testing.T) {
				at := strings.Split(layout, "")
				few := func(_ int, plain framework.Transport) framework.Transport { return fewKernels{plain, []string{kinds}} }
				across := func(r int, plain framework.Transport) framework.Transport {
					return wire{portsOnly{withoutKernels{plain}}, framework.SignalAtomic}
				}
				local{at: at, offers: []offer{few, across}, together: true}.run(t, func(ctx context.Context, world *comm.Communicator) error {
					c, err := collectives.New(ctx, world, collectives.Options{})
					if err != nil {
						return err
					}
					b := buffers{make([]byte, 1<<20), make([]byte, 1<<20)}
					for i, kind := range collectivetest.Kinds() {
						if names := c.Algorithms(kind); layout != "aab" && slices.Contains(over, kind) != slices.Equal(names, []string{"ports"}) {
							err = errors.Join(err, fmt.Errorf("algorithms of %v: %q, where %v have no kernels", kind, names, over))
						}
						err = errors.Join(err, trial{Kind: kind, Count: 5_003, Type: kernel.Float32, Op: kernel.Sum, Root: len(at) - 1}.Run(b.of(c), uint64(i)))
					}
					return errors.Join(err, c.Barrier(nil), c.Close())
				})
			})
		}
	}
}

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
