package collectives_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

// wire stands for a network: it has port channels between all ranks, whatever host
// they say they are on, and claims to signal in some way.
type wire struct {
	portsOnly
	signal framework.Signal
}

func (t wire) Describe(ctx context.Context) (framework.Description, error) {
	d, err := t.portsOnly.Describe(ctx)
	d.Name, d.Signal = "wire", t.signal
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
	signal := framework.Signal("") // there is none
	if network {
		signal = framework.SignalAtomic // of an adapter
	}
	hostsOver(t, at, signal, o, f)
}

// hostsOver is hosts with a network that signals in some way, and may be another one for some ranks.
func hostsOver(t *testing.T, at []string, signal framework.Signal, o collectives.Options, f func(ctx context.Context, c *collectives.Comm) error, change ...func(rank int, wire framework.Transport) framework.Transport) {
	t.Helper()
	o.Scratch = cmp.Or(o.Scratch, littleScratch)
	across := func(r int, plain framework.Transport) (w framework.Transport) {
		w = wire{portsOnly{plain}, signal}
		for _, f := range change {
			w = f(r, w)
		}
		return w
	}
	ranks := local{at: at, offers: []offer{asItIs, across}}
	if signal == "" {
		ranks.offers = ranks.offers[:1]
	}
	ranks.run(t, func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, o)
		if err != nil {
			return err
		}
		if err = f(ctx, c); err != nil {
			world.Abort(err)
		}
		return errors.Join(err, c.Close(), c.Close())
	})
}

// offer makes a transport of a rank of what shares memory.
type offer func(rank int, plain framework.Transport) framework.Transport

func asItIs(_ int, plain framework.Transport) framework.Transport { return plain }

// local is a job in this process whose ranks say that they are on several hosts.
type local struct {
	at       []string // by rank
	offers   []offer  // in order of preference
	log      *slog.Logger
	together bool // ranks leave when all have ended: an earlier one would end the wait of another
}

func (l local) run(t *testing.T, f func(ctx context.Context, world *comm.Communicator) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	one := func(r int, boot framework.Bootstrap) error {
		dev, err := host.Open(prefault)
		if err != nil {
			return err
		}
		defer dev.Close()
		config := shm.Config{}.Defaults()
		config.Images = images
		var all []*comm.Transport
		for _, made := range l.offers {
			plain, err := shm.New(config)
			if err != nil {
				return err
			}
			tr, err := comm.NewTransport(ctx, made(r, plain), "embedded")
			if err != nil {
				return err
			}
			defer tr.CloseModules()
			all = append(all, tr)
		}
		world, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: all, Log: l.log, Facts: framework.Facts{Host: l.at[r], NUMA: -1}})
		if err != nil {
			return err
		}
		err = f(ctx, world)
		if err != nil {
			world.Abort(err) // or the others would wait for this rank
		}
		return errors.Join(err, world.Close())
	}
	var ranks, ended sync.WaitGroup
	ended.Add(len(l.at))
	for r, boot := range bootstrap.InProcess(len(l.at)) {
		ranks.Go(func() {
			if err := one(r, boot); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			ended.Done()
			if l.together {
				ended.Wait()
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
	for _, layout := range []string{"ab", "aab", "abbac", "aabb", "abab", "aaabb", "aabbcc", "aabbcc, large pieces", "aaabbcdd, large pieces"} {
		t.Run(layout, func(t *testing.T) {
			letters, large, _ := strings.Cut(layout, ",")
			at := strings.Split(letters, "")
			n := len(at)
			o := collectives.Options{Scratch: 1} // the smallest pieces
			if large != "" {
				o.Scratch = 1 << 20 // shares that go in two steps, in some pieces
			}
			hosts(t, at, true, o, func(ctx context.Context, c *collectives.Comm) error {
				const most = 20011 + 8
				b := buffers{make([]byte, 2*most*8*n), make([]byte, 2*most*8*n)}
				i := 0
				for _, kind := range collectivetest.Kinds() {
					for _, algorithm := range []string{"ports", "", "hierarchical_packets", "hierarchical_small", "hierarchical_large"} {
						for range 24 / n {
							x := trial{
								Kind: kind, Algorithm: algorithm, Count: counts[i%len(counts)], Type: kernel.DataType(i % kernel.DataTypes),
								Op: kernel.Op(i / 2 % kernel.Ops), Root: i % n, InPlace: i/3%2 == 0, Shift: i / 5 % 4,
							}
							i += 7
							if !fits(c, x) {
								continue
							}
							if err := x.Run(b.of(c), uint64(i)); err != nil {
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

// Hosts that call different things get an error that says what, and no result.
func TestDisagreementOverHosts(t *testing.T) {
	usual := trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
	for name, change := range map[string]func(x *trial){
		"count":      func(x *trial) { x.Count = 1001 },
		"type":       func(x *trial) { x.Type = kernel.Int32 },
		"operation":  func(x *trial) { x.Op = kernel.Max },
		"collective": func(x *trial) { x.Kind = collectives.Broadcast },
		"algorithm":  func(x *trial) { x.Algorithm = "ports" },
	} {
		for _, layout := range []string{"ab", "aabb"} {
			if name == "algorithm" && layout == "ab" {
				continue // there is no other
			}
			at := strings.Split(layout, "")
			t.Run(name+" "+layout, func(t *testing.T) {
				var mu sync.Mutex
				said := 0
				hosts(t, at, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
					x := usual
					if at[c.Rank()] == "b" {
						change(&x)
					}
					b := make([]byte, 8*x.Count)
					err := x.Call(c, pointer(b), pointer(b), 0)
					if err == nil {
						err = c.Barrier(nil) // one side of another pair of calls may have got through
					}
					if !errors.Is(err, framework.ErrInvalid) && !errors.Is(err, framework.ErrPeer) {
						return fmt.Errorf("%v, expected ErrInvalid, or ErrPeer of the one who found out", err)
					}
					mu.Lock()
					defer mu.Unlock()
					if strings.Contains(err.Error(), "ranks disagree") && strings.Contains(err.Error(), "of 1000 f32 sum") {
						said++
					}
					return nil
				})
				if said == 0 {
					t.Error("no error says that ranks disagree and on what")
				}
			})
		}
	}
}

// Nor does it matter in which step of two levels: those of its host wait inside, those
// of the others for the network.
func TestDeathBetweenLevels(t *testing.T) {
	const culprit = 3
	hosts(t, []string{"a", "a", "b", "b", "c", "c"}, true, collectives.Options{Scratch: 1 << 20}, func(_ context.Context, c *collectives.Comm) error {
		b := make([]float32, 50_000)
		p := unsafe.Pointer(&b[0])
		for i := 0; ; i++ {
			if c.Rank() == culprit && i == 3 {
				c.Communicator().Abort(&framework.Error{Op: "test", Peer: culprit, Err: fmt.Errorf("%w: it stumbles", framework.ErrPeer)})
				return nil
			}
			if err := c.AllReduce(p, p, len(b), kernel.Float32, kernel.Max, nil); err != nil {
				if !errors.Is(err, framework.ErrPeer) || framework.PeerOf(err) != culprit {
					return fmt.Errorf("%v, expected ErrPeer of rank %d", err, culprit)
				}
				return nil
			}
		}
	})
}

// All ranks get the same bits, and the same in every run, whatever is rounded on the
// way: sums of numbers that no order adds up alike.
func TestSameBitsOverHosts(t *testing.T) {
	for _, layout := range []string{"aabb", "aabbcc", "aaabb", "aabbbc"} {
		at := strings.Split(layout, "")
		hosts(t, at, true, collectives.Options{Scratch: 1 << 20}, func(ctx context.Context, c *collectives.Comm) error {
			const count = 50_000 // of 4 bytes: shares of 16 KiB and more, in some pieces
			in, out := make([]float32, count), make([]float32, count)
			for i := range in {
				in[i] = float32(math.Sin(float64(i*7+c.Rank()*131)) * math.Exp2(float64((i+c.Rank())%20)))
			}
			for _, algorithm := range []string{"ports", "hierarchical_packets", "hierarchical_small", "hierarchical_large"} {
				n := count
				if algorithm == "hierarchical_small" || algorithm == "hierarchical_packets" {
					n = 1000
				}
				var first []byte
				for run := range 3 {
					clear(out)
					if err := c.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), n, kernel.Float32, kernel.Sum, &collectives.CallOptions{Algorithm: algorithm}); err != nil {
						return err
					}
					sum := sha256.Sum256(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), 4*n))
					all, err := c.Communicator().AllGather(ctx, sum[:])
					if err != nil {
						return err
					}
					if run == 0 {
						first = all[0]
					}
					for r, s := range all {
						if !bytes.Equal(s, first) {
							return fmt.Errorf("%s over %s, run %d: the bits of rank %d are not those of rank 0 in the first run", algorithm, layout, run, r)
						}
					}
				}
			}
			return nil
		})
	}
}

// fits reports whether an algorithm is there and serves the case: not every one is for
// all sizes, types and layouts.
func fits(c *collectives.Comm, x trial) bool {
	if x.Algorithm == "" || x.Algorithm == "ports" {
		return true
	}
	in, out := x.Elements(c.Size())
	_, err := c.Choice(collectives.Request{
		Collective: x.Kind, Count: uint64(x.Count), Bytes: uint64(max(in, out) * x.Type.Size()), Type: x.Type, Op: x.Op, Root: x.Root,
	}, x.Algorithm)
	return err == nil
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

// A call that no engine can carry is refused with a reason.
func TestRefusedOverHosts(t *testing.T) {
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

// Messages are matched by their order, and none of another length passes.
func TestMessagesOverHosts(t *testing.T) {
	at := []string{"a", "b", "b"}
	var exchanged sync.WaitGroup // outside of the job, which the last step ends
	exchanged.Add(len(at))
	hosts(t, at, true, collectives.Options{Scratch: 1}, func(_ context.Context, c *collectives.Comm) error {
		left := sync.OnceFunc(exchanged.Done)
		defer left()
		n := len(at)
		const count = 30_000 // some pieces
		out, in := make([]byte, n*count), make([]byte, n*count)
		for r := range n {
			reference.Fill(out[r*count:(r+1)*count], kernel.Uint8, kernel.Sum, 1, c.Rank(), r*count)
		}
		for range 2 {
			clear(in)
			c.GroupStart()
			for r := range n { // all send first, more than there are slots
				if err := errors.Join(c.Send(pointer(out[r*count:]), count-r, kernel.Uint8, r, nil),
					c.Recv(pointer(in[r*count:]), count-c.Rank(), kernel.Uint8, r, nil)); err != nil {
					return err
				}
			}
			if err := c.GroupEnd(); err != nil {
				return err
			}
			for r := range n {
				want := make([]byte, count)
				reference.Fill(want, kernel.Uint8, kernel.Sum, 1, r, c.Rank()*count)
				if !bytes.Equal(in[r*count:(r+1)*count-c.Rank()], want[:count-c.Rank()]) {
					return fmt.Errorf("the message of rank %d is wrong", r)
				}
			}
		}
		left()
		exchanged.Wait()
		var err error
		if c.Rank() == 0 {
			err = c.Send(pointer(out), 10, kernel.Uint8, 2, nil)
		}
		if c.Rank() == 2 {
			err = c.Recv(pointer(in), 11, kernel.Uint8, 0, nil)
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "10 bytes") {
				return fmt.Errorf("a message of another length: %v, expected ErrInvalid", err)
			}
			return nil
		}
		if err != nil && !errors.Is(err, framework.ErrPeer) && !errors.Is(err, framework.ErrInvalid) {
			return err // the other end may have given up by now
		}
		return nil
	})
}

// Small messages are on their way before their receivers ask for them: ranks that all send and then
// receive do not wait for each other, whatever went before, nor does a call behind them.
func TestMessagesInARing(t *testing.T) {
	hosts(t, []string{"a", "a", "b", "b"}, true, collectives.Options{}, func(_ context.Context, c *collectives.Comm) error {
		next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		b := make([]byte, 8*c.Size())
		for range 10 {
			if err := errors.Join(c.Send(pointer(b), 8, kernel.Uint8, next, nil), c.Recv(pointer(b), 8, kernel.Uint8, previous, nil)); err != nil {
				return err
			}
		}
		return c.AllReduce(pointer(b), pointer(b), 1, kernel.Int64, kernel.Max, &collectives.CallOptions{Algorithm: "ports"})
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
