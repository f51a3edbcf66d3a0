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
						if failed := (trial{Kind: kind, Count: 5_003, Type: kernel.Float32, Op: kernel.Sum, Root: len(at) - 1}).Run(b.of(c), uint64(i)); failed != nil {
							return errors.Join(err, failed) // other ranks may wait in this call
						}
					}
					return errors.Join(err, c.Barrier(nil), c.Close())
				})
			})
		}
	}
}

// someCalls is a transport of a vendor that has written kernels for some calls of a collective.
type someCalls struct {
	fewKernels
	keep func(*framework.KernelInfo) bool // which may change it
}

func (t someCalls) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.Transport.Describe(ctx)
	all := d.Kernels
	d.Kernels = nil
	for _, k := range all {
		if k.Collective != "allreduce" || t.keep(&k) {
			d.Kernels = append(d.Kernels, k)
		}
	}
	return d, err
}

// Where the kernels of a collective are for some types, reductions or buffers alone, they serve those calls, and
// port channels the others.
func TestKernelsForSomeCalls(t *testing.T) {
	call := func(dtype kernel.DataType, op kernel.Op, count int) collectives.Request {
		return collectives.Request{Collective: collectives.AllReduce, Type: dtype, Op: op, Count: uint64(count), Bytes: uint64(count * dtype.Size()), Ranks: 2, Device: "host"}
	}
	const small, large = 64, 100_003
	for name, x := range map[string]struct {
		keep           func(*framework.KernelInfo) bool
		served, others []collectives.Request
		said           string
	}{
		"a type": {
			func(k *framework.KernelInfo) bool { k.Types = []string{"f32"}; return k.Algorithm == "ring" },
			[]collectives.Request{call(kernel.Float32, kernel.Sum, small), call(kernel.Float32, kernel.Avg, large)},
			[]collectives.Request{call(kernel.Float16, kernel.Sum, small), call(kernel.Int64, kernel.Max, large)},
			"allreduce(f32: sum prod min max avg premulsum)",
		},
		"reductions": {
			func(k *framework.KernelInfo) bool { k.Ops = []string{"sum", "max"}; return k.Algorithm == "ring" },
			[]collectives.Request{call(kernel.Float32, kernel.Sum, small), call(kernel.Int8, kernel.Max, large), call(kernel.Float16, kernel.PreMulSum, large)},
			[]collectives.Request{call(kernel.Float32, kernel.Prod, small), call(kernel.Int8, kernel.Avg, large)},
			"allreduce(f32: sum max, ",
		},
		"a type for a reduction": {
			func(k *framework.KernelInfo) bool {
				switch k.Algorithm {
				case "ring":
					k.Types, k.Ops = []string{"f32"}, []string{"sum"}
				case "twophase_chunk":
					k.Types, k.Ops = []string{"f64"}, []string{"max"}
				default:
					return false
				}
				return true
			},
			[]collectives.Request{call(kernel.Float32, kernel.Sum, large), call(kernel.Float64, kernel.Max, large)},
			[]collectives.Request{call(kernel.Float32, kernel.Max, small), call(kernel.Float64, kernel.Sum, small)},
			"allreduce(f32: sum, f64: max)",
		},
		"registered buffers": {
			func(k *framework.KernelInfo) bool { return k.Algorithm == "zerocopy" },
			nil, []collectives.Request{call(kernel.Float32, kernel.Sum, large)}, "allreduce()",
		},
	} {
		for _, layout := range []string{"aa", "aab"} {
			t.Run(name+" "+layout, func(t *testing.T) {
				some := func(_ int, plain framework.Transport) framework.Transport {
					return someCalls{fewKernels{plain, nil}, x.keep}
				}
				across := func(r int, plain framework.Transport) framework.Transport {
					return wire{portsOnly{withoutKernels{plain}}, framework.SignalAtomic}
				}
				local{at: strings.Split(layout, ""), offers: []offer{some, across}, together: true}.run(t, func(ctx context.Context, world *comm.Communicator) error {
					c, err := collectives.New(ctx, world, collectives.Options{})
					if err != nil {
						return err
					}
					b := buffers{make([]byte, 1<<21), make([]byte, 1<<21)}
					for i, r := range slices.Concat(x.served, x.others) {
						if layout == "aa" {
							by, e := c.Choice(r, "")
							if over := i >= len(x.served); e != nil || (by == "ports") != over {
								err = errors.Join(err, fmt.Errorf("%d elements of %v with %v: %q, %v, expected port channels: %v", r.Count, r.Type, r.Op, by, e, over))
							}
						}
						if failed := (trial{Kind: r.Collective, Count: int(r.Count), Type: r.Type, Op: r.Op}).Run(b.of(c), uint64(i)); failed != nil {
							return errors.Join(err, failed) // other ranks may wait in this call
						}
					}
					if got := collectives.Covered(world); !strings.Contains(got, x.said) {
						err = errors.Join(err, fmt.Errorf("kernels for %s: expected %s", got, x.said))
					}
					return errors.Join(err, c.Barrier(nil), c.Close())
				})
			})
		}
	}
}

// The kernels of this module leave nothing for port channels.
func TestOurKernelsServeEverything(t *testing.T) {
	job(t, 2, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		if got := collectives.Covered(c.Communicator()); strings.Contains(got, "(") || !strings.HasSuffix(got, "barrier sendrecv]") {
			return fmt.Errorf("kernels for %s: expected all calls of all collectives", got)
		}
		return nil
	})
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
					if failed := (trial{Kind: kind, Count: 5_003, Type: kernel.Float32, Op: kernel.Sum, Root: len(at) - 1}).Run(b.of(c), uint64(i)); failed != nil {
						return errors.Join(err, failed) // other ranks may wait in this call
					}
				}
				return errors.Join(err, c.Barrier(nil), c.Close())
			})
		})
	}
}
