// Package recipe carries out what a transport wants done to reach a peer: the mappings and
// steps of an Attachment.
package recipe

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Operands are what the steps of a recipe act on.
type Operands struct {
	Transport *transport.Transport
	Members   []int // the other members of the connection, ascending
	Own       *memory.Memory
	Object    framework.Object    // for a switch group: what an imported object is
	Created   []device.Object     // objects this rank created, being the root
	Done      func(*Result) error // of Together: what is to be said about the result before the members part

	// Map takes the place of the device's, for mappings at addresses that are chosen.
	Map func(framework.Mapping) (device.Memory, error)
}

// Result is a recipe that was carried out.
type Result struct {
	Mapped  []device.Memory // per mapping; nil where no step mapped it
	Strides []uint64        // per mapping; of an emulated window
	objects []device.Object
	Close   func(ctx context.Context) error
}

// Ranges is the object of a switch group, if memory can be bound to it later; else nil.
func (p *Result) Ranges() device.Ranges {
	if len(p.objects) == 0 {
		return nil
	}
	r, _ := p.objects[0].(device.Ranges)
	return r
}

// Performer carries out recipes on the device of one rank.
type Performer struct {
	Boot     framework.Bootstrap
	Counters *counters.Counters
	Life     *life.Life
}

// Perform carries out a recipe and closes its descriptors. After an error nothing
// of it is left.
func (c *Performer) Perform(ctx context.Context, att framework.Attachment, sc Operands) (*Result, error) {
	defer att.Close()
	p := c.begin(att, sc)
	for i, s := range att.Steps {
		if err := c.step(ctx, p, att, s, sc); err != nil {
			c.Life.Rollback(p.Close)
			return nil, fmt.Errorf("step %d of %d: %w", i+1, len(att.Steps), err)
		}
	}
	return p, nil
}

func (c *Performer) begin(att framework.Attachment, sc Operands) *Result {
	p := &Result{Mapped: make([]device.Memory, len(att.Mappings)), Strides: make([]uint64, len(att.Mappings))}
	p.objects = append(p.objects, sc.Created...)
	p.Close = func(ctx context.Context) error { return p.release(ctx, sc.Transport, att.ID) }
	return p
}

func (c *Performer) step(ctx context.Context, p *Result, att framework.Attachment, s framework.Step, sc Operands) error {
	switch s.Op {
	case framework.StepMap:
		return c.stepMap(p, att, s, sc)
	case framework.StepImport:
		return c.stepImport(p, att, s, sc)
	case framework.StepBarrier:
		return c.Agree(ctx, "attach", sc.Members, nil)
	case framework.StepAdd, framework.StepBind:
		if s.Object < 0 || s.Object >= len(p.objects) {
			return Nonsense("object %d of %d", s.Object, len(p.objects))
		}
		o := p.objects[s.Object]
		if s.Op == framework.StepAdd {
			return o.Add()
		}
		return o.Bind(s.Slot, sc.Own.Memory, s.Share, s.Offset, s.Bytes)
	}
	return Nonsense("unknown verb %d", s.Op)
}

// stepMap maps memory, or the window of an object if the mapping is one.
func (c *Performer) stepMap(p *Result, att framework.Attachment, s framework.Step, sc Operands) error {
	if s.Mapping < 0 || s.Mapping >= len(att.Mappings) || p.Mapped[s.Mapping] != nil {
		return Nonsense("mapping %d of %d", s.Mapping, len(att.Mappings))
	}
	m := att.Mappings[s.Mapping]
	var err error
	switch {
	case m.Role == framework.RoleMulticast:
		if s.Object < 0 || s.Object >= len(p.objects) {
			return Nonsense("object %d of %d", s.Object, len(p.objects))
		}
		p.Mapped[s.Mapping], p.Strides[s.Mapping], err = p.objects[s.Object].Map()
	case m.Role == framework.RoleInbox:
		p.Mapped[s.Mapping], err = c.Counters.MapInbox(m)
	case sc.Map != nil:
		p.Mapped[s.Mapping], err = sc.Map(m)
	default:
		p.Mapped[s.Mapping], err = c.Counters.Dev.Map(m)
	}
	return err
}

// stepImport opens an object of the group. The root has it already.
func (c *Performer) stepImport(p *Result, att framework.Attachment, s framework.Step, sc Operands) error {
	if s.Mapping < 0 || s.Mapping >= len(att.Mappings) || s.Object > len(p.objects) || s.Object < 0 {
		return Nonsense("import of mapping %d as object %d", s.Mapping, s.Object)
	}
	if s.Object < len(p.objects) {
		return nil
	}
	var failures []error
	for _, share := range att.Mappings[s.Mapping].Shares {
		o, err := c.Counters.Dev.Object(sc.Object, &share)
		if err == nil {
			p.objects = append(p.objects, o)
			return nil
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("%w: object cannot be opened: %w", framework.ErrUnavailable, errors.Join(failures...))
}

func (p *Result) release(ctx context.Context, t *transport.Transport, id framework.ID) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, m := range p.Mapped {
		if m != nil {
			keep(m.Close())
		}
	}
	for _, o := range p.objects {
		keep(o.Close())
	}
	if id != 0 {
		if err := t.Close(ctx, id); !errors.Is(err, framework.ErrPlugin) {
			keep(err)
		}
	}
	return first
}

// Nonsense is the error for a recipe that cannot be: the transport is at fault.
func Nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: recipe: "+format, append([]any{framework.ErrPlugin}, args...)...)
}
