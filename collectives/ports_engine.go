package collectives

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// portsEngine performs collectives of ranks that do not all share memory.
type portsEngine struct {
	*ports
	list     []hostAlgorithm
	messages [2]*engine.Algorithm // by kernels, where that is found out to be possible; else by the host
	decided  bool                 // whether kernels of ports exchange between hosts
}

// hostAlgorithm is an algorithm that is a function of this process.
type hostAlgorithm struct {
	row  Row // that chooses it
	fits func(Request) bool
	run  func(*Call) error
}

// newPortsEngine makes the engine for ranks of such hosts, which do not share memory for the reason apart.
func newPortsEngine(c *comm.Communicator, o Options, describe func(*signature) string, apart error, hosts [][]int) (*portsEngine, error) {
	var k *courier
	onHost := isHost(c)
	if !onHost {
		k = newCourier(c)
	}
	switch {
	case !onHost && k == nil:
		return nil, fmt.Errorf("%w: collectives: ranks do not all share memory, and streams of %v cannot wait for the host, which would carry the data: %w", framework.ErrUnsupported, c.Device().Info().Device, apart)
	case !c.Offers(framework.KindPort):
		return nil, fmt.Errorf("%w: collectives: neither memory channels nor port channels join all ranks: %w", framework.ErrUnsupported, apart)
	}
	e := &portsEngine{ports: newPorts(c, o.Scratch, describe)}
	if tooMany(c) {
		e.First = counterparts(hosts, c.Rank())
	}
	if !onHost {
		e.courier, k.ports = k, e.ports
	}
	e.list = append(offerHierarchy(e.ports, c, o, hosts), offerPorts(e.ports)...)
	e.messages = [2]*engine.Algorithm{engine.New(collective.SendRecv, hierarchicalDirect), engine.New(collective.SendRecv, portsName)}
	for _, a := range e.messages {
		a.Engine = e
	}
	return e, nil
}

// Offers lists the algorithms.
func (e *portsEngine) Offers() (o engine.Offers) {
	for i, a := range e.list {
		x := engine.New(a.row.Collective, a.row.Algorithm)
		x.Engine, x.Key, x.ByRow = e, i, true
		if a.fits != nil {
			x.Fits = func(q *engine.Query) error {
				if a.fits(q.Request) {
					return nil
				}
				return fmt.Errorf("%w: algorithm %s does not take this call", framework.ErrUnsupported, a.row.Algorithm)
			}
		}
		o.Algorithms, o.Rows = append(o.Algorithms, x), append(o.Rows, a.row)
	}
	messages := e.messages[1:]
	if e.hierarchy.mails() {
		messages = e.messages[:]
	}
	o.Algorithms = append(o.Algorithms, messages...)
	return o
}

// Settle finds out, before the first call is, what can serve calls: the same on all
// ranks. A stream that is captured cannot wait for that. Messages on the host have nothing to choose from.
func (e *portsEngine) Settle(k collective.Kind, s device.Stream) (changed bool, err error) {
	p := e.ports
	if k.Messages() && p.courier == nil || p.hierarchy == nil || p.hierarchy.direct == nil && p.hierarchy.packets == nil {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.decided || p.failed != nil {
		return false, p.failed
	}
	if !p.ready && p.courier != nil {
		if state, err := p.courier.device.Query(s); err != nil || state == device.StreamCapturing {
			return false, err // it will be refused
		}
	}
	if err := p.setUp(); err != nil { // messages may have done it already
		return false, err
	}
	e.decided = true
	return true, nil
}

// Run performs a call.
func (e *portsEngine) Run(c *engine.Call) error {
	call := publicCall(c)
	return e.list[c.Algorithm.Key].run(call)
}

// publicCall is a call as programs see it.
func publicCall(c *engine.Call) *Call {
	return &Call{Request: c.Request, Input: c.Input, Output: c.Output, Stream: c.Stream, Scale: c.Scale}
}

// Exchange performs a group of messages.
func (e *portsEngine) Exchange(g *engine.Group) error {
	perform := e.ports.messages
	switch {
	case e.bundles(g):
		perform = e.allToAllV
	case e.courier != nil && e.hierarchy.mails() && (g.By == nil || g.By.Name == hierarchicalDirect):
		perform = e.enqueueMail
	}
	if err := perform(g.List, g.Stream); err != nil {
		return fmt.Errorf("%v: %w", g.Kind, err)
	}
	return nil
}

// Prepare loads what kernels between hosts need; a job's first call finds out whether there are any.
func (e *portsEngine) Prepare(k collective.Kind, t kernel.DataType, _ []*engine.Algorithm) error {
	return e.prepare(k, t)
}

// Close releases everything.
func (e *portsEngine) Close() error {
	var drained error
	if k := e.courier; k != nil {
		drained = engine.Drain(k.world, k.last, k.any)
	}
	return errors.Join(drained, e.close())
}

func isHost(c *comm.Communicator) bool { return c.Device().Info().Device == framework.Host }

// offerPorts lists the algorithms that need nothing but ports.
func offerPorts(p *ports) (list []hostAlgorithm) {
	for k, run := range map[Collective]func(*ports, context.Context, *Call) error{
		AllReduce: (*ports).allReduce, AllGather: (*ports).allGather, ReduceScatter: (*ports).reduceScatter,
		Broadcast: (*ports).broadcast, Reduce: (*ports).reduce, AllToAll: (*ports).allToAll, Barrier: (*ports).barrier,
	} {
		list = append(list, hostAlgorithm{Row{Collective: k, Algorithm: portsName}, nil, func(call *Call) error {
			if p.courier != nil {
				return p.enqueue(call, portsName, func(t *trip) { t.flat(run) })
			}
			return p.collective(call, portsName, func(ctx context.Context) error {
				if err := p.LinkAll(ctx); err != nil {
					return err
				}
				return run(p, ctx, call)
			})
		}})
	}
	return list
}

// describing says in words what calls signatures are of.
func describing(name func(k collective.Kind, id uint32) string) func(s *kernelargs.Signature) string {
	return func(s *kernelargs.Signature) string {
		if *s == lanes.OfMessages() {
			return "a message" // its pieces do not say of what
		}
		return s.Describe(name)
	}
}
