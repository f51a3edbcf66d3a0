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

	// Fits reports whether the algorithm can serve a call; nil: it serves every call.
	Fits func(Request) bool

	// Run performs the call. It may use the Comm for other collectives.
	Run func(c *Comm, call *Call) error
}

// program is the engine of the algorithms that the program has registered.
type program struct {
	mu   sync.Mutex // calls are performed at any time
	list []*engine.Algorithm
	run  []func(*engine.Call) error
}

func (p *program) add(a Algorithm, run func(*engine.Call) error) {
	x := engine.New(a.Collective, a.Name)
	x.Engine, x.ByRow, x.Calls = p, true, true
	if a.Fits != nil {
		x.Fits = func(q *engine.Query) error {
			if a.Fits(q.Request) {
				return nil
			}
			return fmt.Errorf("%w: algorithm %s does not take this call", framework.ErrUnsupported, a.Name)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x.Key = len(p.list)
	p.list, p.run = append(p.list, x), append(p.run, run)
}

func (p *program) Offers() engine.Offers {
	p.mu.Lock()
	defer p.mu.Unlock()
	return engine.Offers{Algorithms: p.list}
}

func (p *program) Settle(collective.Kind, device.Stream) (changed bool, err error) { return false, nil }

func (p *program) Run(c *engine.Call) error {
	p.mu.Lock()
	run := p.run[c.Algorithm.Key]
	p.mu.Unlock()
	return run(c)
}

func (p *program) Exchange(*engine.Group) error {
	return errors.New("collectives: algorithms of the program exchange no messages")
}

func (p *program) Prepare(collective.Kind, kernel.DataType, []*engine.Algorithm) error { return nil }

func (p *program) Close() error { return nil }

// publicCall is a call as programs see it.
func publicCall(c *engine.Call) *Call {
	return &Call{Request: c.Request, Input: c.Input, Output: c.Output, Stream: c.Stream, Scale: c.Scale}
}
