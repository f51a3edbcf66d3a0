package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/gpu/host"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// wire stands for a network: it has port channels between all ranks, whatever host
// they say they are on.
type wire struct{ portsOnly }

func (t wire) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.portsOnly.Describe(ctx)
	d.Name = "wire"
	return d, err
}

func (t wire) Listen(ctx context.Context, cfg framework.EndpointConfig) (framework.Endpoint, error) {
	cfg.Facts.Host = "everywhere"
	return t.portsOnly.Listen(ctx, cfg)
}

func (t wire) NewProxy(ctx context.Context) (framework.Proxy, error) {
	return t.Transport.(framework.Proxier).NewProxy(ctx)
}

// hosts runs f as the ranks of a job over several hosts: at[r] is that of rank r.
// Within a host there is shared memory, between hosts a network if there is any.
func hosts(t *testing.T, at []string, network bool, o collectives.Options, f func(ctx context.Context, c *collectives.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	one := func(r int, boot framework.Bootstrap) error {
		dev, err := host.Open()
		if err != nil {
			return err
		}
		defer dev.Close()
		config := shm.Config{}.Defaults()
		config.Images = images
		var all []*comm.Transport
		for _, wrap := range []func(framework.Transport) framework.Transport{
			func(t framework.Transport) framework.Transport { return t },
			func(t framework.Transport) framework.Transport { return wire{portsOnly{t}} },
		}[:map[bool]int{false: 1, true: 2}[network]] {
			inner, err := shm.New(config)
			if err != nil {
				return err
			}
			tr, err := comm.NewTransport(ctx, wrap(inner), "embedded")
			if err != nil {
				return err
			}
			defer tr.CloseModules()
			all = append(all, tr)
		}
		world, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: all, Facts: framework.Facts{Host: at[r], NUMA: -1}})
		if err != nil {
			return err
		}
		c, err := collectives.New(ctx, world, o)
		if err != nil {
			return errors.Join(err, world.Close())
		}
		if err = f(ctx, c); err != nil {
			world.Abort(err)
		}
		return errors.Join(err, c.Close(), c.Close(), world.Close())
	}
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(len(at)) {
		ranks.Go(func() {
			if err := one(r, boot); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if err := boot.Close(); err != nil {
				t.Errorf("rank %d: leave: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

// Ranks of several hosts, not as many on each, get the results that ranks of one do.
func TestResultsOverHosts(t *testing.T) {
	for _, at := range [][]string{{"a", "b"}, {"a", "a", "b"}, {"a", "b", "b", "a", "c"}} {
		t.Run(strings.Join(at, ""), func(t *testing.T) {
			n := len(at)
			o := collectives.Options{Scratch: 1} // the smallest pieces
			hosts(t, at, true, o, func(ctx context.Context, c *collectives.Comm) error {
				const most = 20011 + 8
				b := buffers{make([]byte, 2*most*8*n), make([]byte, 2*most*8*n)}
				i := 0
				for _, kind := range kinds[:6] {
					for _, algorithm := range []string{"ports", ""} {
						for range 30 {
							x := trial{
								kind: kind, algorithm: algorithm, count: counts[i%len(counts)], dtype: device.DataType(i % int(device.Float8E4M3)),
								op: device.Op(i / 2 % int(device.PreMulSum)), root: i % n, inPlace: i/3%2 == 0, shift: i / 5 % 4,
							}
							i += 7
							if err := x.run(c, b, uint64(i)); err != nil {
								return err
							}
						}
					}
					if err := c.Barrier(nil); err != nil {
						return err
					}
				}
				return carriers(c.Communicator(), at)
			})
		})
	}
}

// carriers checks that shared memory joined the ranks of a host, and the network the
// others.
func carriers(c *comm.Communicator, at []string) error {
	ports := 0
	for _, l := range c.Links() {
		want := "wire"
		if at[l.Peer] == at[c.Rank()] {
			want = "shm"
		}
		if l.Kind == framework.KindPort {
			ports++
		}
		if l.Transport.Name != want {
			return fmt.Errorf("a %v link to rank %d goes over %s, expected %s", l.Kind, l.Peer, l.Transport.Name, want)
		}
	}
	if ports != len(at)-1 {
		return fmt.Errorf("%d port links, expected %d", ports, len(at)-1)
	}
	return nil
}

// What there is no way to do over hosts is refused with a reason, and what nobody can
// carry as well.
func TestRefusedOverHosts(t *testing.T) {
	p := pointer(make([]byte, 16))
	hosts(t, []string{"a", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		for what, err := range map[string]error{
			"send":           c.Send(p, 1, device.Float32, 1-c.Rank(), nil),
			"8 bit floats":   c.AllReduce(p, p, 1, device.Float8E5M2, device.Sum, nil),
			"pre-multiplied": c.AllReduce(p, p, 1, device.Float32, device.PreMulSum, &collectives.CallOptions{Scale: 2}),
		} {
			if !errors.Is(err, framework.ErrUnsupported) && !errors.Is(err, framework.ErrUnavailable) {
				return fmt.Errorf("%s: %v, expected it refused", what, err)
			}
		}
		return c.Barrier(nil) // and nothing is out of step
	})
	hosts(t, []string{"a", "b"}, false, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		err := c.Barrier(nil)
		if err == nil || !strings.Contains(err.Error(), "no common transport") {
			return fmt.Errorf("barrier of ranks that nothing joins: %v, expected the reason", err)
		}
		if again := c.Barrier(nil); again == nil || again.Error() != err.Error() {
			return fmt.Errorf("once more: %v, expected the same", again)
		}
		return nil
	})
}

// A rank that dies in a collective ends that of all others, with an error that names
// it.
func TestDeathOverHosts(t *testing.T) {
	hosts(t, []string{"a", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		if c.Rank() == 1 {
			if err := c.Barrier(nil); err != nil {
				return err
			}
			c.Communicator().Abort(&framework.Error{Op: "test", Peer: 1, Err: fmt.Errorf("%w: it stumbles", framework.ErrPeer)})
			return nil
		}
		err := c.Barrier(nil) // which may be over before the rank dies
		if err == nil {
			err = c.Barrier(nil)
		}
		if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != 1 {
			return fmt.Errorf("%v, expected ErrPeer of rank 1", err)
		}
		return nil
	})
}
