package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// stepsContext is what the steps of a recipe act on.
type stepsContext struct {
	transport *Transport
	members   []int // the other members of the connection, ascending
	own       *Memory
	object    framework.Object // for a switch group: what an imported object is
	created   []device.Object  // objects this rank created, being the root
}

// performed is a recipe that was carried out.
type performed struct {
	mapped  []device.Memory // per mapping; nil where no step mapped it
	strides []uint64        // per mapping; of an emulated window
	objects []device.Object
	close   func(ctx context.Context) error
}

// perform carries out a recipe and closes its descriptors. After an error nothing
// of it is left.
func (c *Communicator) perform(ctx context.Context, att framework.Attachment, sc stepsContext) (*performed, error) {
	defer att.Close()
	p := &performed{mapped: make([]device.Memory, len(att.Mappings)), strides: make([]uint64, len(att.Mappings))}
	p.objects = append(p.objects, sc.created...)
	p.close = func(ctx context.Context) error { return p.release(ctx, sc.transport, att.ID) }
	for i, s := range att.Steps {
		if err := c.step(ctx, p, att, s, sc); err != nil {
			c.undo(p.close)
			return nil, fmt.Errorf("step %d of %d: %w", i+1, len(att.Steps), err)
		}
	}
	return p, nil
}

func (c *Communicator) step(ctx context.Context, p *performed, att framework.Attachment, s framework.Step, sc stepsContext) error {
	switch s.Op {
	case framework.StepMap:
		return c.stepMap(p, att, s)
	case framework.StepImport:
		return c.stepImport(p, att, s, sc)
	case framework.StepBarrier:
		return c.stepBarrier(ctx, sc.members)
	case framework.StepAdd, framework.StepBind:
		if s.Object < 0 || s.Object >= len(p.objects) {
			return nonsense("object %d of %d", s.Object, len(p.objects))
		}
		o := p.objects[s.Object]
		if s.Op == framework.StepAdd {
			return o.Add()
		}
		return o.Bind(s.Slot, sc.own.Memory, s.Share, s.Offset, s.Bytes)
	}
	return nonsense("unknown verb %d", s.Op)
}

// stepMap maps memory, or the window of an object if the mapping is one.
func (c *Communicator) stepMap(p *performed, att framework.Attachment, s framework.Step) error {
	if s.Mapping < 0 || s.Mapping >= len(att.Mappings) || p.mapped[s.Mapping] != nil {
		return nonsense("mapping %d of %d", s.Mapping, len(att.Mappings))
	}
	m := att.Mappings[s.Mapping]
	var err error
	switch m.Role {
	case framework.RoleMulticast:
		if s.Object < 0 || s.Object >= len(p.objects) {
			return nonsense("object %d of %d", s.Object, len(p.objects))
		}
		p.mapped[s.Mapping], p.strides[s.Mapping], err = p.objects[s.Object].Map()
	case framework.RoleInbox:
		p.mapped[s.Mapping], err = c.control.mapInbox(m)
	default:
		p.mapped[s.Mapping], err = c.dev.Map(m)
	}
	return err
}

// stepImport opens an object of the group. The root has it already.
func (c *Communicator) stepImport(p *performed, att framework.Attachment, s framework.Step, sc stepsContext) error {
	if s.Mapping < 0 || s.Mapping >= len(att.Mappings) || s.Object > len(p.objects) || s.Object < 0 {
		return nonsense("import of mapping %d as object %d", s.Mapping, s.Object)
	}
	if s.Object < len(p.objects) {
		return nil
	}
	var failures []error
	for _, share := range att.Mappings[s.Mapping].Shares {
		o, err := c.dev.Object(sc.object, &share)
		if err == nil {
			p.objects = append(p.objects, o)
			return nil
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("%w: object cannot be opened: %w", framework.ErrUnavailable, errors.Join(failures...))
}

// stepBarrier waits for all members of the connection: each tells all others.
// Groups are small, and this is once per buffer.
func (c *Communicator) stepBarrier(ctx context.Context, members []int) error {
	for _, r := range members {
		if err := c.boot.Send(ctx, r, tagStep, framework.Parcel{}); err != nil {
			return err
		}
	}
	for _, r := range members {
		p, err := c.boot.Recv(ctx, r, tagStep)
		if err != nil {
			return err
		}
		p.Close() // nothing is expected in it, and what is there would be ours
	}
	return nil
}

func (p *performed) release(ctx context.Context, t *Transport, id framework.ID) error {
	var first error
	keep := func(err error) {
		if err != nil && first == nil {
			first = err
		}
	}
	for _, m := range p.mapped {
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

// nonsense is the error for a recipe that cannot be: the transport is at fault.
func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: recipe: "+format, append([]any{framework.ErrPlugin}, args...)...)
}
