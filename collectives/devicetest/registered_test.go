package devicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// placed lists calls on registered memory that is a part of the window: words and parts of them, at places where words begin
// and where they do not, in place and not.
func placed() (list []trial) {
	for _, typ := range []kernel.DataType{kernel.Float32, kernel.BFloat16, kernel.Float64, kernel.Uint64} {
		for _, count := range []int{1, 8, 1025, 4096} {
			for shift := range 2 {
				for _, inPlace := range []bool{false, true} {
					list = append(list, trial{Kind: collectives.AllReduce, Count: count, Type: typ, Op: kernel.Sum, Shift: shift, InPlace: inPlace, Graph: count == 1025})
				}
				list = append(list, trial{Kind: collectives.ReduceScatter, Count: count, Type: typ, Op: kernel.Avg, Shift: shift})
				list = append(list, trial{Kind: collectives.AllGather, Count: count, Type: typ, Shift: shift})
			}
		}
	}
	for i := range list {
		list[i].Algorithm = "switch_zerocopy"
	}
	return list
}

// Registered memory becomes a part of the window, once, and calls on it give the results of the others.
func TestSwitchOnRegisteredMemory(t *testing.T) {
	log := filepath.Join(t.TempDir(), "calls")
	if !interpreted(t, "CUDA_EMULATED_MULTICAST_LOG="+log) {
		calls, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for gpu := range 2 {
			if n := strings.Count(string(calls), fmt.Sprintf("cuMulticastBindMem %d\n", gpu)); n != 2 {
				t.Errorf("GPU %d binds %d times, expected twice: the window's own memory and that of the program", gpu, n)
			}
			if n := strings.Count(string(calls), fmt.Sprintf("cuMulticastUnbind %d\n", gpu)); n != 2 {
				t.Errorf("GPU %d unbinds %d times, expected twice", gpu, n)
			}
		}
		return
	}
	run(t, make([]string, 2), setting{nvls: true}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		const half = 1 << 20
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		for i, x := range placed() {
			x.Graph = x.Graph && i > 0
			took, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(i))
			if !took || err != nil {
				return fmt.Errorf("%v: served %v: %w", x, took, err)
			}
		}
		return nil
	})
}

// byTable has a table choose the window for registered memory, and nothing else by the switch.
var byTable = collectives.Options{Table: []collectives.Row{{Collective: collectives.AllReduce, Algorithm: "switch_zerocopy"}}}

// refusedPlace makes calls on memory that one rank cannot bind. All ranks serve them by another algorithm, and one that names the
// window gets the reason.
func refusedPlace(t *testing.T, reason string) {
	t.Helper()
	run(t, make([]string, 2), setting{nvls: true}, byTable, func(ctx context.Context, r *rank) error {
		const half = 1 << 20
		m, err := r.memory(ctx, 2*half)
		if err != nil {
			return err
		}
		for i := range 3 {
			x := trial{Kind: collectives.AllReduce, Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
			if _, err := attempt(r, r.rig(ctx, m.Addr(), half), x, uint64(i)); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		x := trial{Kind: collectives.AllReduce, Algorithm: "switch_zerocopy", Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
		if _, err = attempt(r, r.rig(ctx, m.Addr(), half), x, 9); err == nil || !strings.Contains(err.Error(), "cannot become a part of the window") {
			return fmt.Errorf("by name: %w: expected the reason", err)
		}
		if s, _, ok := r.world.Find(m.Addr(), 1); !ok || !s.Unbindable() {
			return errors.New("the memory is not known as refused")
		}
		other, err := r.world.Alloc(4096)
		if err != nil {
			return err
		}
		s, err := r.world.Exchange(ctx, other)
		if err != nil {
			return err
		}
		ch, err := r.world.SwitchChannel(ctx, other, comm.Room(4<<20))
		if err == nil {
			_, err = ch.Bind(ctx, s)
		}
		if err == nil || !strings.Contains(err.Error(), reason) {
			return fmt.Errorf("%w: expected %q", err, reason)
		}
		if _, known, refused := ch.Bound(s); !known || refused == nil {
			return errors.New("the refusal is not kept")
		}
		return errors.Join(r.world.Err(), ch.Close())
	})
}

// Each answer of the driver to a bind of registered memory, on one rank, is a refusal on all of this memory alone.
func TestRegisteredMemoryIsRefused(t *testing.T) {
	for code, reason := range map[string]string{
		"1": "without a reset of the GPUs", "2": "no room for another window", "47": "no room for another window", "401": "the fabric manager does not run", "801": "there is no switch",
	} {
		t.Run(code, func(t *testing.T) {
			// The first bind of each of the two windows is spared: the memory of the program comes second.
			if interpreted(t, emulated.EnvFaults+"=cuMulticastBindMem@1+1:"+code+"x1,cuMulticastBindMem@1+2:"+code) {
				refusedPlace(t, reason)
			}
		})
	}
}

// A driver that is not ready for registered memory is asked again by all ranks.
func TestRegisteredMemoryIsTriedAgain(t *testing.T) {
	if !interpreted(t, emulated.EnvFaults+"=cuMulticastBindMem@1+1:802x2") {
		return
	}
	run(t, make([]string, 2), setting{nvls: true}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 2<<20)
		if err != nil {
			return err
		}
		x := trial{Kind: collectives.AllReduce, Algorithm: "switch_zerocopy", Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
		_, err = attempt(r, r.rig(ctx, m.Addr(), 1<<20), x, 1)
		return err
	})
}

// A switch that has no window with room gives one without: then registered memory goes by copies.
func TestWindowWithoutRoom(t *testing.T) {
	if !interpreted(t, emulated.EnvFaults+"=cuMulticastCreate@0:2x1") {
		return
	}
	o := collectives.Options{Table: []collectives.Row{{Collective: collectives.AllReduce, Algorithm: "switch_zerocopy"}, {Collective: collectives.AllReduce, Algorithm: "switch"}}}
	run(t, make([]string, 2), setting{nvls: true}, o, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 2<<20)
		if err != nil {
			return err
		}
		for i, algorithm := range []string{"", "switch", ""} {
			x := trial{Kind: collectives.AllReduce, Algorithm: algorithm, Count: 1000, Type: kernel.Float32, Op: kernel.Sum}
			if _, err := attempt(r, r.rig(ctx, m.Addr(), 1<<20), x, uint64(i)); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		return nil
	})
}

// exchanged is memory of all ranks, of so many units.
func (r *rank) exchanged(ctx context.Context, units uint64) (*comm.Symmetric, error) {
	m, err := r.world.Alloc(units << 21)
	if err != nil {
		return nil, err
	}
	return r.world.Exchange(ctx, m)
}

// Memory is bound side by side, where all ranks have room: a place that one rank has given back is free when all have.
func TestPlacesInTheWindow(t *testing.T) {
	if !interpreted(t) {
		return
	}
	const unit = 2 << 20
	run(t, make([]string, 2), setting{nvls: true}, collectives.Options{}, func(ctx context.Context, r *rank) error {
		own, err := r.world.Alloc(unit)
		if err != nil {
			return err
		}
		ch, err := r.world.SwitchChannel(ctx, own, comm.Room(4*unit))
		if err != nil {
			return err
		}
		// bind gives memory of so many units a place, which has to be this one; 0: it is refused, with these words.
		bind := func(units, want uint64, words string) *comm.Symmetric {
			if err != nil {
				return nil
			}
			var s *comm.Symmetric
			if s, err = r.exchanged(ctx, units); err != nil {
				return nil
			}
			at, e := ch.Bind(ctx, s)
			switch {
			case want == 0 && (e == nil || !strings.Contains(e.Error(), words)):
				err = fmt.Errorf("%d units: %w: expected %q", units, e, words)
			case want != 0 && (e != nil || at != want*unit):
				err = fmt.Errorf("%d units: at %d: %w: expected unit %d", units, at, e, want)
			}
			return s
		}
		one, two := bind(1, 1, ""), bind(2, 2, "")
		bind(2, 0, "do not fit into the window")
		bind(1+uint64(r.Rank()), 0, "bytes, of exchanged memory")
		bind(1, 4, "")
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = one.Close() // the other rank keeps it in
		}
		bind(1, 0, "do not fit into the window")
		if err == nil {
			err = errors.Join(one.Close(), two.Own().Close()) // with the memory goes its place
		}
		bind(1, 1, "")
		bind(2, 2, "")
		if _, e := ch.Bind(ctx, one); err == nil && !errors.Is(e, framework.ErrClosed) && !errors.Is(e, framework.ErrInvalid) {
			err = fmt.Errorf("closed memory: %w", e)
		}
		return errors.Join(err, r.world.Err(), ch.Close())
	})
}

// A call of nothing opens no window and binds nothing, although the memory of one rank would be reached by one, and the other has none.
func TestEmptyCallsBindNothing(t *testing.T) {
	log := filepath.Join(t.TempDir(), "calls")
	if !interpreted(t, "CUDA_EMULATED_MULTICAST_LOG="+log) {
		calls, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if strings.Contains(string(calls), "cuMulticastBindMem") {
			t.Errorf("expected no binding, got %s", calls)
		}
		return
	}
	run(t, make([]string, 2), setting{nvls: true}, byTable, func(ctx context.Context, r *rank) error {
		m, err := r.memory(ctx, 1<<20)
		if err != nil {
			return err
		}
		at := m.Addr()
		if r.Rank() == 1 {
			at = 0
		}
		for _, algorithm := range []string{"", "switch_zerocopy"} {
			x := trial{Kind: collectives.AllReduce, Algorithm: algorithm, Type: kernel.Float32, Op: kernel.Sum}
			if err := x.Call(r.Comm, pointer(at), pointer(at), r.stream); err != nil {
				return fmt.Errorf("%q: %w", algorithm, err)
			}
		}
		return r.dev.Sync(r.stream)
	})
}
