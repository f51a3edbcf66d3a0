// Package machine executes code objects of AMD's GPUs: waves of 64 lanes, blocks with memory of their own, several GPUs
// at once. A seed decides in which order waves advance, and, with caches, when data moves.
//
// It is made for tests of kernels that no such GPU has run. It computes what the manuals say, reports what a kernel
// must not do (registers that are read before their load was waited for, addresses of nothing, encodings that are not
// known), and says nothing about time.
package machine

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
)

// New makes a machine.
func New(m Memory, o Options) *Machine {
	if o.Steps == 0 {
		o.Steps = defaultSteps
	}
	return &Machine{memory: m, opts: o, random: rand.New(rand.NewPCG(o.Seed, 0x6d616368))}
}

// Run runs kernels at the same time until all have ended.
func (m *Machine) Run(launches ...*Launch) error {
	for _, l := range launches {
		if err := m.Add(l); err != nil {
			return err
		}
	}
	for steps := 0; len(m.waves) > 0; {
		if steps > m.opts.Steps {
			return m.stuck()
		}
		before := m.clock
		if _, err := m.Step(); err != nil {
			return err
		}
		steps += int(m.clock-before) + 1
	}
	return nil
}

// Add begins a kernel, beside those that are under way.
func (m *Machine) Add(l *Launch) error {
	w, err := m.start(l)
	if err != nil {
		return fmt.Errorf("launch %s on device %d: %w", l.Kernel, l.Device, err)
	}
	m.waves = append(m.waves, w...)
	m.memory.Begin(l.Device)
	return nil
}

// Drop ends a kernel where it is. Its accesses that are on the way are lost.
func (m *Machine) Drop(l *Launch) {
	m.waves = slices.DeleteFunc(m.waves, func(w *wave) bool {
		if w.block.grid.Launch == l {
			m.memory.Forget(w.block.grid.args)
			return true
		}
		return false
	})
}

// Idle reports whether no kernel is under way.
func (m *Machine) Idle() bool { return len(m.waves) == 0 }

// Step lets one wave advance. It returns the kernel that has ended by this, or that made a mistake, which the error is.
func (m *Machine) Step() (*Launch, error) {
	at := m.random.IntN(len(m.waves))
	w := m.waves[at]
	n, err := w.advance(1 + m.random.IntN(64))
	m.clock += uint64(n)
	if err == nil && m.opts.Weak {
		err = w.drift()
	}
	if err != nil {
		return w.block.grid.Launch, w.located(err)
	}
	if m.opts.Weak {
		m.memory.Drift(m.random)
	}
	if w.state != ended {
		return nil, nil
	}
	m.waves[at] = m.waves[len(m.waves)-1]
	m.waves = m.waves[:len(m.waves)-1]
	g := w.block.grid
	if g.running--; g.running > 0 {
		return nil, nil
	}
	// The end of a kernel makes all that it wrote visible.
	m.memory.Forget(g.args)
	if err := m.memory.End(g.Device); err != nil {
		return g.Launch, w.located(err)
	}
	return g.Launch, nil
}

// start makes the waves of a launch.
func (m *Machine) start(l *Launch) ([]*wave, error) {
	k, err := l.Program.Object.Kernel(l.Kernel)
	if err != nil {
		return nil, err
	}
	if l.Grid == 0 || l.Block == 0 || uint64(l.Block) > k.Threads {
		return nil, fmt.Errorf("grid %d, block %d: expected at least 1, and at most %d threads", l.Grid, l.Block, k.Threads)
	}
	if k.Private != 0 || k.Dynamic {
		return nil, fmt.Errorf("%d bytes of private memory: expected none", k.Private)
	}
	g := &grid{Launch: l, kernel: k}
	if g.args, err = arguments(k, l); err != nil {
		return nil, err
	}
	m.memory.Constant(g.args)
	m.memory.Constant(l.Program.Object.Image)
	var waves []*wave
	for n := range l.Grid {
		b := &block{grid: g, number: n, core: m.core(l, n), lds: make([]byte, k.Group)}
		for first := uint32(0); first < l.Block; first += 64 {
			w := newWave(m, b, first, min(64, l.Block-first))
			b.waves = append(b.waves, w)
			waves = append(waves, w)
		}
		b.running = len(b.waves)
	}
	g.running = len(waves)
	return waves, nil
}

// core is where a block runs.
func (m *Machine) core(l *Launch, block uint32) Core {
	c := m.memory.Core(l.Device, block)
	c.Space = l.Space
	return c
}

// arguments lays out the segment of arguments, with the values that a runtime adds.
func arguments(k *object.Kernel, l *Launch) ([]byte, error) {
	seg := make([]byte, max(k.ArgsBytes, 8))
	values := map[string]uint64{
		"hidden_block_count_x": uint64(l.Grid), "hidden_block_count_y": 1, "hidden_block_count_z": 1,
		"hidden_group_size_x": uint64(l.Block), "hidden_group_size_y": 1, "hidden_group_size_z": 1,
		"hidden_remainder_x": 0, "hidden_remainder_y": 0, "hidden_remainder_z": 0,
		"hidden_global_offset_x": 0, "hidden_global_offset_y": 0, "hidden_global_offset_z": 0, "hidden_grid_dims": 1,
	}
	for i, a := range k.Args {
		if a.Offset+a.Size > uint64(len(seg)) {
			return nil, fmt.Errorf("argument %d ends at byte %d of %d", i, a.Offset+a.Size, len(seg))
		}
		if a.Kind == "by_value" {
			if i != 0 || a.Size != uint64(len(l.Args)) {
				return nil, fmt.Errorf("argument %d has %d bytes: expected one argument of %d", i, a.Size, len(l.Args))
			}
			copy(seg, l.Args)
			continue
		}
		v, ok := values[a.Kind]
		if !ok {
			return nil, fmt.Errorf("argument %d is %s: no runtime of this machine knows it", i, a.Kind)
		}
		for j := range a.Size {
			seg[a.Offset+j] = byte(v >> (8 * j))
		}
	}
	return seg, nil
}

// stuck reports waves that do not come to an end.
func (m *Machine) stuck() error {
	text := ""
	for i, w := range m.waves {
		if i == 8 {
			text += fmt.Sprintf("; and %d more", len(m.waves)-i)
			break
		}
		text += "; " + w.where()
	}
	return fmt.Errorf("seed %d: %d instructions and no end: %d waves are left%s", m.opts.Seed, m.opts.Steps, len(m.waves), text)
}
