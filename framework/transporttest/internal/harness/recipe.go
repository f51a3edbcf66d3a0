package harness

import (
	"context"
	"fmt"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Window is what a recipe made addressable.
type Window struct {
	Mem    device.Memory
	Bytes  []byte // nil where this process cannot touch it
	Stride uint64 // switch: distance between the members' copies
}

// RecipeRunner carries out recipes for one member of a link.
type RecipeRunner struct {
	Rank    *Rank
	own     *Buffer
	objects []device.Object // those of the group; the root brings what it created
	Meet    *barrier
}

// Perform carries out the recipe until the end of the test, and closes its
// descriptors. It ends the test if the recipe cannot be carried out.
func (p *RecipeRunner) Perform(a framework.Attachment) []Window {
	t := p.Rank.T
	windows := make([]Window, len(a.Mappings))
	for i, s := range a.Steps {
		if err := p.step(a, s, windows); err != nil {
			_ = a.Close()
			t.Fatalf("rank %d: step %d of %d of the recipe (%+v): %v", p.Rank.N, i+1, len(a.Steps), s, err)
		}
	}
	if err := a.Close(); err != nil {
		t.Errorf("rank %d: close the recipe: %v", p.Rank.N, err)
	}
	if a.ID != 0 {
		t.Cleanup(func() { p.Rank.Release(a.ID) })
	}
	return windows
}

func (p *RecipeRunner) step(a framework.Attachment, s framework.Step, windows []Window) error {
	t := p.Rank.T
	if s.Op == framework.StepMap || s.Op == framework.StepImport {
		if s.Mapping < 0 || s.Mapping >= len(a.Mappings) {
			return fmt.Errorf("mapping %d of %d", s.Mapping, len(a.Mappings))
		}
	}
	switch s.Op {
	case framework.StepBarrier:
		return p.Meet.wait(t.ctx)
	case framework.StepImport:
		return p.open(a.Mappings[s.Mapping], s)
	case framework.StepMap:
		m := a.Mappings[s.Mapping]
		w := &windows[s.Mapping]
		var err error
		if m.Role == framework.RoleMulticast {
			var o device.Object
			if o, err = p.object(s); err == nil {
				w.Mem, w.Stride, err = o.Map()
			}
		} else {
			w.Mem, err = p.Rank.Device.Map(m)
		}
		if err != nil {
			return err
		}
		mem := w.Mem
		t.Cleanup(func() { _ = mem.Close() })
		if !t.Claims.Memory.Apart {
			w.Bytes = device.Bytes(mem)
		}
		return nil
	case framework.StepAdd, framework.StepBind:
		o, err := p.object(s)
		if err != nil {
			return err
		}
		if s.Op == framework.StepAdd {
			return o.Add()
		}
		var own device.Memory
		if p.own != nil {
			own = p.own.Mem
		}
		return o.Bind(s.Slot, own, s.Share, s.Offset, s.Bytes)
	}
	return fmt.Errorf("verb %d is not in the contract", s.Op)
}

func (p *RecipeRunner) object(s framework.Step) (device.Object, error) {
	if s.Object < 0 || s.Object >= len(p.objects) {
		return nil, fmt.Errorf("object %d of %d", s.Object, len(p.objects))
	}
	return p.objects[s.Object], nil
}

// open imports an object of the group; the root has it already.
func (p *RecipeRunner) open(m framework.Mapping, s framework.Step) error {
	if s.Object < len(p.objects) {
		return nil
	}
	if s.Object != len(p.objects) {
		return fmt.Errorf("import as object %d, with %d so far", s.Object, len(p.objects))
	}
	err := fmt.Errorf("no shares to import")
	for _, share := range m.Shares {
		var o device.Object
		if o, err = p.Rank.Device.Object(framework.Object{Kind: framework.ObjectMulticast}, &share); err == nil {
			p.objects = append(p.objects, o)
			p.Rank.T.Cleanup(func() { _ = o.Close() })
			return nil
		}
	}
	return err
}

// barrier is one of n goroutines that can be used again and again.
type barrier struct {
	mu      sync.Mutex
	n, here int
	open    chan struct{}
}

// NewBarrier returns a barrier for n goroutines.
func NewBarrier(n int) *barrier { return &barrier{n: n, open: make(chan struct{})} }

func (m *barrier) wait(ctx context.Context) error {
	m.mu.Lock()
	ready := m.open
	if m.here++; m.here == m.n {
		m.here, m.open = 0, make(chan struct{})
		close(ready)
	}
	m.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("barrier: another member did not come: %w", ctx.Err())
	}
}
