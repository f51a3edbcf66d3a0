package collectives

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/crosshost"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lifetime"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Names of the algorithms in two levels.
const (
	hierarchicalPackets = "hierarchical_packets"
	hierarchicalSmall   = "hierarchical_small"
	hierarchicalLarge   = "hierarchical_large"
)

// hierarchy performs collectives in two levels: inside a host by kernels over memory
// channels, between hosts over the port channels of ports. Hosts are the groups of
// ranks that share memory, and need not have the same number of ranks.
//
// Small calls send redundantly: all ranks of a host have its part, and each of them
// gives it to counterparts on the other hosts, so that nothing has to be passed on
// inside. Large calls divide the data of a host among its ranks, so that each of them
// sends a part and all adapters are busy, and they do it piece by piece, so that one
// piece crosses the network while the next is worked on inside.
//
// Partial results of a host are added up in the order of the hosts, once, or alike in
// all places: all ranks get the same bits, in all runs. They are not those of the
// order of the ranks, and partial results have the type of the elements.
type hierarchy struct {
	*crosshost.Exchange
	ports *ports

	world   *comm.Communicator // on whose device the kernels run
	options Options            // of inside
	inside  *Comm
	group   *comm.Communicator
	closed  chan struct{}

	packets  *packets    // nil where it cannot be
	direct   *direct     // nil where it cannot be
	carries  atomic.Bool // it was made
	delivers atomic.Bool // messages as well
}

// offerHierarchy lists the algorithms in two levels, if there are two.
func offerHierarchy(p *ports, c *comm.Communicator, o Options, hosts [][]int) (list []hostAlgorithm) {
	alone := len(hosts) == c.Size() // each on a host of its own: there is one level
	if len(hosts) < 2 || alone && p.courier == nil {
		return nil
	}
	h := &hierarchy{Exchange: crosshost.New(placement.New(hosts, c.Rank()), p.Lanes), ports: p, options: innerOptions(o, p.courier == nil), world: c, closed: make(chan struct{})}
	p.hierarchy = h
	divided := p.First != nil // one host that counts as several: no network to spare
	if !divided {
		list = offerDirect(h, o.Sharing)
	}
	if alone {
		return list
	}
	if !divided {
		list = append(list, offerPackets(h)...)
	}
	small := min(crosshost.MostSmall, p.Piece)
	for _, a := range []struct {
		row  Row
		fits func(Request) bool
		run  func(*hierarchy, context.Context, *Call) error
		trip func(*trip)
	}{
		{Row{Collective: AllToAll, Algorithm: hierarchicalSmall, MaxBytes: h.Bundled()}, nil, (*hierarchy).allToAllSmall, (*trip).allToAllSmall},
		{Row{Collective: AllToAll, Algorithm: hierarchicalLarge}, nil, (*hierarchy).allToAllLarge, (*trip).allToAllLarge},
		{Row{Collective: Barrier, Algorithm: hierarchicalSmall}, nil, bySignals((*hierarchy).barrier), (*trip).barrier},
		{Row{Collective: AllReduce, Algorithm: hierarchicalSmall, MaxBytes: small}, partial, bySignals((*hierarchy).allReduceSmall), (*trip).allReduceSmall},
		{Row{Collective: AllReduce, Algorithm: hierarchicalLarge}, partial, (*hierarchy).allReduceLarge, (*trip).allReduceLarge},
		{Row{Collective: AllGather, Algorithm: hierarchicalSmall, MaxBytes: small}, nil, bySignals((*hierarchy).allGatherSmall), (*trip).allGatherSmall},
		{Row{Collective: AllGather, Algorithm: hierarchicalLarge}, nil, (*hierarchy).allGatherLarge, (*trip).allGatherLarge},
		{Row{Collective: ReduceScatter, Algorithm: hierarchicalSmall, MaxBytes: small}, partial, bySignals((*hierarchy).reduceScatterSmall), (*trip).reduceScatterSmall},
		{Row{Collective: ReduceScatter, Algorithm: hierarchicalLarge}, partial, (*hierarchy).reduceScatterLarge, (*trip).reduceScatterLarge},
		{Row{Collective: Broadcast, Algorithm: hierarchicalSmall, MaxBytes: small}, nil, (*hierarchy).broadcastSmall, (*trip).broadcastSmall},
		{Row{Collective: Broadcast, Algorithm: hierarchicalLarge}, nil, (*hierarchy).broadcastLarge, (*trip).broadcastLarge},
		{Row{Collective: Reduce, Algorithm: hierarchicalSmall, MaxBytes: small}, partial, (*hierarchy).reduceSmall, (*trip).reduceSmall},
		{Row{Collective: Reduce, Algorithm: hierarchicalLarge}, partial, (*hierarchy).reduceLarge, (*trip).reduceLarge},
	} {
		most := a.row.MaxBytes
		if a.row.Collective == AllToAll { // works in pieces
			most = 0
		}
		fits := func(r Request) bool {
			return (most == 0 || r.Bytes <= most) && (a.fits == nil || a.fits(r))
		}
		list = append(list, hostAlgorithm{a.row, fits, func(call *Call) error {
			if p.courier != nil {
				return p.enqueue(call, a.row.Algorithm, a.trip)
			}
			return p.collective(call, a.row.Algorithm, func(ctx context.Context) error {
				return lifetime.Abandon(p.Comm, a.run(h, ctx, call))
			})
		}})
	}
	return list
}

// innerOptions are those of the ranks of a host.
func innerOptions(of Options, onHost bool) Options {
	if onHost {
		return Options{Signatures: of.Signatures}
	}
	of.Table = nil
	return of
}

// open makes the communicator of the host. It is collective over all hosts.
func (h *hierarchy) open(ctx context.Context) error {
	if h.Most == 1 {
		return nil
	}
	var err error
	if h.group, err = h.world.Split(ctx, h.Host, h.Index); err != nil {
		return fmt.Errorf("ranks of the host: %w", err)
	}
	if h.inside, err = New(ctx, h.group, h.options); err != nil {
		return fmt.Errorf("ranks of the host: %w", err)
	}
	if err := h.ports.courier.prepare(h); err != nil {
		return err
	}
	// A wait inside ends with what the host waits for. On the host a call returns what has
	// ended it; what kernels of a GPU have met is known to their communicator alone.
	if h.ports.courier == nil {
		go func() {
			select {
			case <-h.world.Done():
				h.group.Abort(h.world.Err())
			case <-h.closed:
			}
		}()
		return nil
	}
	go lifetime.Bind(h.world, h.group, h.closed, h.named)
	return nil
}

func (h *hierarchy) closeDirect() error {
	if h == nil {
		return nil
	}
	h.carries.Store(false)
	return h.direct.close()
}

func (h *hierarchy) close() error {
	if h == nil {
		return nil
	}
	close(h.closed)
	var all []error
	if h.inside != nil {
		all = append(all, h.inside.Close())
	}
	if h.group != nil {
		all = append(all, h.group.Close())
	}
	return errors.Join(all...)
}

// named says of an error inside the host which rank of the job it is about. The ranks of
// the host may have heard of a failure on another one before the job has: its number
// means nothing among them, so the job is given time to hear of it as well.
func (h *hierarchy) named(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, framework.ErrPeer) && framework.PeerOf(err) == framework.NoPeer {
		select {
		case <-h.world.Done():
		case <-time.After(lifetime.Patience):
		}
	}
	if cause := h.world.Err(); cause != nil {
		return cause // the same, or what it comes from
	}
	if peer := framework.PeerOf(err); peer >= 0 && peer < h.Size() {
		return &framework.Error{Op: "ranks of the host", Peer: h.Hosts[h.Host][peer], Err: err}
	}
	return err
}

// partial is whether two levels can reduce.
func partial(r Request) bool { return crosshost.Partial(r.Type, r.Op) }

func reduction(c *Call) crosshost.Reduction { return crosshost.Reduction{Type: c.Type, Op: c.Op} }

// innerOp is the reduction inside a host.
func (h *hierarchy) innerOp(c *Call) (kernel.Op, *CallOptions) {
	op, scale := h.Inner(c.Op, c.Scale)
	return op, &CallOptions{Stream: c.Stream, Scale: scale}
}
