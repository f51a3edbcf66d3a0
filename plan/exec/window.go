package exec

import (
	"context"
	"errors"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// windowTail is the end of memory in a window, which belongs to its channel.
const windowTail = 128

// windowBytes is the size of the memory that each rank binds to a window, which is the same on all ranks.
func windowBytes(bytes []uint64) uint64 { return roundUp(slices.Max(bytes), 256) + windowTail }

// hasSwitch finds out whether a switch reaches the GPUs that share memory, where the plan has channels over all of them.
// Operations over other switch channels, and all of them where there is no switch, reach the memory of each member. Collective.
func (e *Executor) hasSwitch(ctx context.Context, all []*tables) (bool, error) {
	asks := func(r int) bool { return slices.ContainsFunc(all[r].groups, e.reach.whole) }
	if e.host || e.reach.comm == nil || !slices.ContainsFunc(e.reach.ranks, asks) {
		return false, nil
	}
	m, err := e.reach.comm.Alloc(2 * windowTail)
	if err != nil {
		return false, err
	}
	w, err := e.openWindow(ctx, m)
	if w != nil {
		err = w.Close()
	}
	return w != nil, errors.Join(err, m.Close())
}

// whole reports whether a group is all ranks that share memory with this one.
func (r *reach) whole(group []int) bool { return slices.Equal(r.ranks, group) }

// openWindow makes one of hardware; nil: there is none. All ranks get the same answer. Collective.
func (e *setting) openWindow(ctx context.Context, m *comm.Memory) (*comm.SwitchChannel, error) {
	w, err := e.reach.comm.SwitchChannel(ctx, m)
	switch {
	case err == nil && w.Handle().Stride == 0:
		return w, nil
	case err == nil:
		return nil, w.Close()
	case errors.Join(e.comm.Err(), e.reach.comm.Err()) != nil: // a rank is gone
		return nil, err
	case !errors.Is(err, framework.ErrUnsupported): // there is a switch, and it is refused
		e.comm.Log().Warn("there is no window for the switch channels of a plan: it goes on without", "plan", e.plan.Name, "reason", err)
	}
	return nil, nil
}

// openWindow puts the arena's memory into a window.
func (a *arena) openWindow(ctx context.Context, e *setting) (err error) {
	if e.switched {
		a.window, err = e.openWindow(ctx, a.memory)
	}
	return err
}

// begin is where the window over a group begins.
func (a *arena) begin(e *setting) func(ranks []int) uint64 {
	return func(ranks []int) uint64 {
		if a.window == nil || !e.reach.whole(ranks) {
			return 0
		}
		return uint64(a.window.Handle().Window)
	}
}

// windows are the slots of switch channels: buffers that lie at one place in the memory of all members. begin returns where the window over
// a group begins; 0: there is none.
func (s *shape) windows(groups [][]int, staged bool, begin func(ranks []int) uint64) []slot {
	out := make([]slot, 3*len(groups))
	for g, ranks := range groups {
		base := begin(ranks)
		if base == 0 {
			continue
		}
		for i, offsets := range [][]uint64{s.in, s.out} {
			first := offsets[ranks[0]]
			if staged && !slices.ContainsFunc(ranks, func(r int) bool { return offsets[r] != first }) {
				out[3*g+i].Address = base + first
			}
		}
		out[3*g+2].Address = base + s.scratch
	}
	return out
}

// reachable are the operations of a rank. Those go through windows that find all their operands there; where there is a window, joins order its accesses and others.
func reachable(t *tables, slots []slot, window bool) []op {
	if len(t.groups) == 0 && !window {
		return t.ops
	}
	out := slices.Clone(t.ops)
	for i := range out {
		o := &out[i]
		if window && (o.Kind == opNop || o.Kind == opBarrier) {
			o.Flags |= aliased
		}
		first := o.Operands + uint32(o.Sources) + uint32(o.Destinations)
		for _, flag := range []uint16{loadsWindow, storesWindow} {
			if o.Flags&flag == 0 {
				continue
			}
			if slots[t.operands[first].Slot].Address == 0 {
				o.Flags &^= loadsWindow | storesWindow
			}
			first++
		}
	}
	return out
}
