package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/scaling"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// RegisterSelector sets the program's selector; nil removes it. All ranks register the
// same selector.
func (c *Comm) RegisterSelector(s Selector) {
	c.choice.mu.Lock()
	defer c.choice.mu.Unlock()
	c.choice.selector = s
	c.choice.changed()
}

// UseTable replaces the rows of Options.Table, which come before the built-in table.
// All ranks call it with the same rows and between the same calls. It is meant for
// programs that measure, and for rows with algorithms that the program has registered;
// other programs configure the table. A row with an algorithm that does not exist is a
// RowError.
func (c *Comm) UseTable(rows []Row) error {
	c.choice.mu.Lock()
	defer c.choice.mu.Unlock()
	if err := choose.CheckRows(rows, c.comm.Kernels(), c.choice.all()); err != nil {
		return fmt.Errorf("collectives: %w", err)
	}
	c.choice.tables.Program = rows
	c.choice.changed()
	return nil
}

// Algorithms lists the names that CallOptions.Algorithm accepts for a collective.
func (c *Comm) Algorithms(k Collective) []string {
	if !k.Valid() {
		return nil
	}
	return choose.Names(c.choice.of(k))
}

// Choice returns the algorithm that a call described by r would run, without running
// it: name if it is given and fits; for "", what the selector and the tables choose. It
// fills in Ranks and Device of r itself. The error is the one that the call would
// return.
//
// Some choices are settled by the first call only. Two ranks on a host that can read
// each other's memory find out in the first large call which method is fastest; until
// then the answer for such calls is pull. Whether kernels drive the exchange between
// hosts of GPUs, and whether packets are used between hosts, is also found out by the
// first call; until then the answer assumes that the host drives it, and that no
// packets are used. Where a call in a capture comes before copies are ready, or a device
// has no memory for them, kernels serve what is said to be copied.
func (c *Comm) Choice(r Request, name string) (string, error) {
	c.choice.mu.Lock()
	defer c.choice.mu.Unlock()
	if c.refused != nil {
		return "", c.refused
	}
	if !r.Collective.Valid() {
		return "", fmt.Errorf("%w: %v", framework.ErrInvalid, r.Collective)
	}
	q := engine.Query{Request: r}
	q.Ranks, q.Device = c.ranks, deviceName(c.host)
	if r.Collective.Messages() {
		list := c.choice.of(SendRecv)
		if len(list) == 0 {
			return "", noKernel(c.comm, "messages", "transfers")
		}
		a, err := c.choice.messagesBy(name)
		if err != nil {
			return "", err
		}
		if a == nil {
			a = list[0]
		}
		return a.Name, nil
	}
	if q.Op == kernel.PreMulSum && q.Collective.Reduces() {
		scaling.Call(&q.Request)
	}
	if q.Empty() {
		q.Registered, q.InPlace = false, false
	}
	if q.Registered {
		q.Reached = engine.ReachInputs | engine.ReachOutputs
	}
	a, _, err := c.choice.find(&q, c.choice.named(&q.Request, name))
	if err != nil {
		return "", err
	}
	return a.Name, nil
}

// Prepare loads the kernels that calls of a collective with elements of these types may
// choose, for all sizes. For a collective that does not reduce, all types use the same
// kernels, and none need be given. Without Prepare the first call loads them, also one that
// is captured. On a GPU without machine code of them that takes seconds the first time on
// a machine, when the driver compiles them. Prepare is local. Kernels that the tables do not choose,
// and the memory of algorithms that use copy engines, are left to the first call that
// needs them. Over several hosts the first call of a job comes before: it decides which
// kernels there are, and without it nothing is loaded.
func (c *Comm) Prepare(k Collective, types ...kernel.DataType) error {
	if !c.progress.enter() {
		return errClosed()
	}
	defer c.progress.leave()
	if err := c.check(); err != nil {
		return err
	}
	if !k.Valid() {
		return fmt.Errorf("prepare: %w: %v", framework.ErrInvalid, k)
	}
	if !k.Reduces() {
		types = []kernel.DataType{kernel.Uint8}
	}
	for _, t := range types {
		if t >= kernel.DataTypes {
			return fmt.Errorf("prepare %v: %w: %v: no such element type", k, framework.ErrInvalid, t)
		}
		chosen := c.choice.chosen(k, t)
		for _, e := range c.engines {
			if err := e.Prepare(k, t, chosen); err != nil {
				return fmt.Errorf("prepare %v: %w", k, err)
			}
		}
		if err := c.scaler.Prepare(t); k.Reduces() && err != nil {
			return fmt.Errorf("prepare %v: %w", k, err)
		}
	}
	return nil
}
