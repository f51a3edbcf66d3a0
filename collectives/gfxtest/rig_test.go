package gfxtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel/kernellist"
	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
	gfx "github.com/mscclpp-go/mscclpp/internal/gfx/object"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

type object = gfx.Object

// carrier is the transport shm with the kernels for AMD's GPUs.
type carrier struct {
	*shm.Transport
	arch string
}

func (c carrier) Describe(ctx context.Context) (framework.Description, error) {
	d, err := c.Transport.Describe(ctx)
	if err != nil {
		return d, err
	}
	set, err := image.Images()
	if err != nil {
		return d, err
	}
	d.Name, d.Kernels, d.Images = "interpreted", nil, nil
	seen := map[string]bool{}
	for _, info := range set.Infos() {
		if info.Arch != c.arch {
			continue
		}
		d.Images = append(d.Images, info)
		for _, symbol := range set.Symbols(info.ID) {
			collective, algorithm, ok := kernellist.Names(symbol)
			if !ok {
				continue
			}
			if !seen[symbol] {
				seen[symbol] = true
				k := kernellist.Collective(info.Family, collective, algorithm, framework.KindMemory)
				k.MaxThreads = set.MaxThreads(info.ID)
				d.Kernels = append(d.Kernels, k)
			}
		}
	}
	for i := range d.Kernels {
		k := &d.Kernels[i]
		if k.Family != kernellist.Reduce {
			continue
		}
		k.Types = nil
		for _, info := range d.Images {
			if info.Family == k.Family && slices.Contains(set.Symbols(info.ID), k.Symbol) {
				k.Types = append(k.Types, info.Type)
			}
		}
	}
	return d, nil
}

func (c carrier) Image(_ context.Context, id string) ([]byte, error) {
	set, err := image.Images()
	if err != nil {
		return nil, err
	}
	return set.Read(id)
}

// rank is one rank of a job on interpreted GPUs.
type rank struct {
	*collectives.Comm
	gpu   *gpu
	world *comm.Communicator
}

// setting is what tests change.
type setting struct {
	arch    string
	options machine.Options
	shape   *memory.Shape // nil: no caches
	scratch memory.Kind   // of what peers write
	user    memory.Kind   // of the callers' buffers
	plant   func(*object)
	wrap    func(machine.Memory) machine.Memory
}

// job runs f as n ranks of this process, and returns their errors and what they had in common.
func job(t testing.TB, n int, s setting, o collectives.Options, f func(ctx context.Context, r *rank) error) (*cluster, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := &cluster{regions: &memory.Regions{}, options: s.options, plant: s.plant, ranks: n, kernels: map[ran]bool{}}
	if c.memory = (memory.Plain{Regions: c.regions}); s.shape != nil {
		c.memory = memory.NewCaches(c.regions, n, *s.shape)
	}
	if s.wrap != nil {
		c.memory = s.wrap(c.memory)
	}
	all := make([]error, n)
	var ranks sync.WaitGroup
	for i, boot := range bootstrap.InProcess(n) {
		ranks.Go(func() {
			defer boot.Close()
			defer c.leave()
			all[i] = runRank(ctx, c, boot, i, s, o, f)
		})
	}
	ranks.Wait()
	return c, errors.Join(all...)
}

func runRank(ctx context.Context, c *cluster, boot framework.Bootstrap, i int, s setting, o collectives.Options, f func(ctx context.Context, r *rank) error) error {
	dev, err := host.Open(host.Prefault(1 << 20))
	if err != nil {
		return err
	}
	defer dev.Close()
	g := &gpu{Device: dev, rank: i, cluster: c, arch: s.arch, kind: s.scratch}
	inner, err := shm.New(shm.Config{}.Defaults())
	if err != nil {
		return err
	}
	transport, err := comm.NewTransport(ctx, carrier{inner.(*shm.Transport), s.arch}, "embedded")
	if err != nil {
		return err
	}
	defer transport.CloseModules()
	world, err := comm.New(ctx, boot, comm.Options{Device: g, Transports: []*comm.Transport{transport}})
	if err != nil {
		return err
	}
	defer world.Close()
	x, err := collectives.New(ctx, world, o)
	if err != nil {
		world.Abort(err)
		return err
	}
	defer x.Close()
	g.kind = s.user
	if err := f(ctx, &rank{x, g, world}); err != nil {
		world.Abort(err)
		return err
	}
	return nil
}

// Listen and Register pretend to the transport that kernels run on the CPU, which they do.
func (c carrier) Listen(ctx context.Context, e framework.EndpointConfig) (framework.Endpoint, error) {
	e.Device = framework.Host
	return c.Transport.Listen(ctx, e)
}

func (c carrier) Register(ctx context.Context, s framework.Segment) (framework.Registration, error) {
	s.Device = framework.Host
	return c.Transport.Register(ctx, s)
}
