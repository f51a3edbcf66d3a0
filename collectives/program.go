package collectives

import (
	"errors"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Algorithm is an algorithm for a collective that the program itself provides. All
// ranks register the same ones.
type Algorithm struct {
	Collective Collective
	Name       string

	// Fits reports whether the algorithm can serve a call; nil: it serves every call. It may depend on the Request alone: calls that repeat do not
	// ask it again.
	Fits func(Request) bool

	// Run performs the call. It may use the Comm for other collectives. The Call is another one's after it has returned.
	Run func(c *Comm, call *Call) error

	// Alone says that Run uses no Comm, and gets none: a call or Close of one would wait for Run, and Run for it, for ever. It costs a call some
	// 20 ns less.
	Alone bool
}

// program is the engine of the algorithms that the program has registered.
type program struct {
	mu   sync.Mutex // calls are performed at any time
	list []*engine.Algorithm
	call Call // by an algorithm that uses no Comm, in its turn
}

func (p *program) add(a Algorithm, c *Comm) {
	x := engine.New(a.Collective, a.Name)
	x.Engine, x.ByRow, x.Calls = p, true, !a.Alone
	if a.Fits != nil {
		x.Fits = func(q *engine.Query) error {
			if a.Fits(q.Request) {
				return nil
			}
			return fmt.Errorf("%w: algorithm %s does not take this call", framework.ErrUnsupported, a.Name)
		}
	}
	if a.Alone {
		c = nil
	}
	x.Own = func(call *Call) error { return a.Run(c, call) }
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, x)
}

func (p *program) Offers() engine.Offers {
	p.mu.Lock()
	defer p.mu.Unlock()
	return engine.Offers{Algorithms: p.list}
}

func (p *program) Settle(collective.Kind, device.Stream) (changed bool, err error) { return false, nil }

// Run performs a call in its turn.
func (p *program) Run(c *engine.Call) error {
	p.call = public(c)
	err := c.Algorithm.Own.(func(*Call) error)(&p.call)
	p.call = Call{} // a Comm must not keep the caller's buffers
	return err
}

func (p *program) Exchange(*engine.Group) error {
	return errors.New("collectives: algorithms of the program exchange no messages")
}

func (p *program) Prepare(collective.Kind, kernel.DataType, []*engine.Algorithm) error { return nil }

func (p *program) Close() error { return nil }

// outsideCall is a call by an algorithm of the program. Its turn has ended, so that the Comm may have begun another one.
type outsideCall struct {
	engine.Call
	public Call
}

var outsideCalls = sync.Pool{New: func() any { return &outsideCall{} }}

func (x *outsideCall) perform() error {
	x.public = public(&x.Call)
	return x.Algorithm.Own.(func(*Call) error)(&x.public)
}

// public is a call as programs see it.
func public(c *engine.Call) Call {
	return Call{Request: c.Request, Input: c.Input, Output: c.Output, Stream: c.Stream, Scale: c.Scale}
}
