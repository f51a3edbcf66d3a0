package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
)

// RegisterAlgorithm adds an algorithm. Built-in algorithms cannot be replaced. Calls and
// selectors may name it from then on, and so may rows given to UseTable; those of
// Options.Table, which are checked before, may not.
func (c *Comm) RegisterAlgorithm(a Algorithm) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !a.Collective.Valid() || a.Collective.Messages():
		return fmt.Errorf("%w: algorithm %q: no algorithms can be added for %v", framework.ErrInvalid, a.Name, a.Collective)
	case a.Name == "" || a.Run == nil:
		return fmt.Errorf("%w: algorithm %q: expected a name and a Run function", framework.ErrInvalid, a.Name)
	case engine.Find(c.choice.of(a.Collective), a.Name) != nil:
		return fmt.Errorf("%w: algorithm %q of %v is registered already", framework.ErrInvalid, a.Name, a.Collective)
	}
	c.program.add(a, c)
	c.choice.refresh(c.engines)
	return nil
}
