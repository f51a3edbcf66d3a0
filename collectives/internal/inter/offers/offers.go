// Package offers keeps what an engine between hosts offers.
package offers

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// List is algorithms that are functions of this process, with the rows that choose them. Engines embed it.
type List struct {
	offers engine.Offers
	runs   []func(*engine.Call) error
}

// Add offers an algorithm of an engine. fits reports whether it takes a call; nil: it takes all.
func (l *List) Add(e engine.Engine, row engine.Row, fits func(*engine.Request) bool, run func(*engine.Call) error) {
	a := engine.New(row.Collective, row.Algorithm)
	a.Engine, a.Key, a.ByRow = e, len(l.runs), true
	if fits != nil {
		a.Fits = func(q *engine.Query) error {
			if fits(&q.Request) {
				return nil
			}
			return fmt.Errorf("%w: algorithm %s does not take this call", framework.ErrUnsupported, row.Algorithm)
		}
	}
	l.offers.Algorithms, l.offers.Rows, l.runs = append(l.offers.Algorithms, a), append(l.offers.Rows, row), append(l.runs, run)
}

// Offers lists the algorithms.
func (l *List) Offers() engine.Offers { return l.offers }

// Run performs a call.
func (l *List) Run(c *engine.Call) error { return l.runs[c.Algorithm.Key](c) }

// Settle has nothing to find out: the maker of the engine does.
func (l *List) Settle(collective.Kind, device.Stream) (changed bool, err error) { return false, nil }

// Prepare has nothing to load.
func (l *List) Prepare(collective.Kind, kernel.DataType, []*engine.Algorithm) error { return nil }
