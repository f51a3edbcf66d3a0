package gfxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// gpu is an interpreted GPU of one rank: memory of the process, and kernels of code objects. It implements
// device.Device and device.Engine. Its launches have ended when they return.
type gpu struct {
	*host.Device
	rank    int
	cluster *cluster
	arch    string
	streams atomic.Uint64
	kind    memory.Kind // of what is allocated next
}

func (g *gpu) Info() device.Info {
	return device.Info{Device: framework.Device{Type: "hip", Index: g.rank}, Name: "interpreted " + g.arch, Archs: []string{g.arch}, SMs: multiprocessors}
}

// multiprocessors is how many blocks kernels have at most: few, because they take turns.
const multiprocessors = 4

// allocated is memory that kernels know.
type allocated struct {
	device.Memory
	regions *memory.Regions
}

// Alloc returns uncached memory, as a transport for AMD allocates what peers write, unless a test says otherwise.
func (g *gpu) Alloc(bytes uint64) (device.Memory, error) {
	m, err := g.Device.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	start := uint64(m.Addr())
	if err := g.cluster.regions.Add(memory.Region{Start: start, End: start + m.Bytes(), Owner: g.rank, Kind: g.kind}); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &allocated{m, g.cluster.regions}, nil
}

func (a *allocated) Close() error {
	a.regions.Remove(uint64(a.Addr()))
	return a.Memory.Close()
}

// Map is of memory of this process, which kernels know already. Other memory is the host's.
func (g *gpu) Map(m framework.Mapping) (device.Memory, error) {
	mapped, err := g.Device.Map(m)
	if err != nil {
		return nil, err
	}
	start := uint64(mapped.Addr())
	if g.cluster.regions.Has(start) {
		return mapped, nil
	}
	err = g.cluster.regions.Add(memory.Region{Start: start, End: start + mapped.Bytes(), Owner: memory.Host, Kind: memory.HostKind})
	return &allocated{mapped, g.cluster.regions}, err
}

// module is a loaded code object.
type module struct {
	gpu     *gpu
	program *machine.Program
	sum     string // of the image, in hexadecimal
}

func (g *gpu) Load(image []byte) (device.Module, error) {
	p, err := machine.Load(image)
	if err != nil {
		return nil, fmt.Errorf("interpreted load: %w: %w", framework.ErrInvalid, err)
	}
	if g.cluster.plant != nil {
		g.cluster.plant(p.Object)
	}
	if p.Object.Arch != g.arch {
		return nil, fmt.Errorf("interpreted load: %w: code for %s on %s", framework.ErrInvalid, p.Object.Arch, g.arch)
	}
	sum := sha256.Sum256(image)
	return &module{g, p, hex.EncodeToString(sum[:])}, nil
}

func (m *module) Kernel(symbol string) (device.Kernel, error) {
	if _, err := m.program.Object.Kernel(symbol); err != nil {
		return nil, fmt.Errorf("interpreted kernel: %w: %w", framework.ErrInvalid, err)
	}
	return &entry{m, symbol}, nil
}

func (m *module) Close() error { return nil }

// window is an emulated window over the memory of all ranks.
type window struct {
	device.Object
	gpu *gpu
}

func (g *gpu) Object(o framework.Object, share *framework.Share) (device.Object, error) {
	made, err := g.Device.Object(o, share)
	if err != nil {
		return nil, err
	}
	return &window{made, g}, nil
}

func (w *window) Bind(slot int, own device.Memory, share *framework.Share, offset, bytes uint64) error {
	if a, ok := own.(*allocated); ok {
		own = a.Memory
	}
	return w.Object.Bind(slot, own, share, offset, bytes)
}

func (w *window) Map() (device.Memory, uint64, error) {
	m, stride, err := w.Object.Map()
	if err != nil {
		return nil, 0, err
	}
	start := uint64(m.Addr())
	regions := w.gpu.cluster.regions
	if err := regions.Add(memory.Region{Start: start, End: start + m.Bytes(), Owner: memory.Host, Kind: memory.HostKind}); err != nil {
		return nil, 0, errors.Join(err, m.Close())
	}
	return &allocated{m, regions}, stride, nil
}

type entry struct {
	module *module
	symbol string
}

func (k *entry) Launch(l device.Launch, args unsafe.Pointer, bytes uintptr) error {
	g := k.module.gpu
	own := append([]byte(nil), unsafe.Slice((*byte)(args), bytes)...)
	return g.cluster.launch(k.module.sum, &machine.Launch{Device: g.rank, Program: k.module.program, Kernel: k.symbol, Grid: l.Grid, Block: l.Block, Args: own})
}

func (g *gpu) NewStream() (device.Stream, error) { return device.Stream(g.streams.Add(1)), nil }

func (g *gpu) CloseStream(device.Stream) error { return nil }

func (g *gpu) Copy(_ device.Stream, dst, src uintptr, bytes uint64) error {
	copy(slice(dst, bytes), slice(src, bytes))
	return nil
}

func (g *gpu) Write(_ device.Stream, addr uintptr, value uint64) error {
	atomic.StoreUint64((*uint64)(at(addr)), value)
	return nil
}

func (g *gpu) Query(device.Stream) (device.StreamState, error) { return device.StreamIdle, nil }

func (g *gpu) Sync(device.Stream) error { return nil }

// NewMark returns a mark of work that has ended when it was enqueued, so nothing has to wait for it.
func (g *gpu) NewMark() (device.Mark, error) { return mark{}, nil }

type mark struct{}

func (mark) Record(device.Stream) error { return nil }
func (mark) Wait(device.Stream) error   { return nil }
func (mark) Close() error               { return nil }

func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

func slice(addr uintptr, bytes uint64) []byte { return unsafe.Slice((*byte)(at(addr)), bytes) }

// cluster is the GPUs of a job. Kernels that their ranks launch at the same time run together, by one schedule.
type cluster struct {
	regions *memory.Regions
	memory  machine.Memory
	options machine.Options
	plant   func(*object)

	mu      sync.Mutex
	ranks   int // that may still launch
	runs    uint64
	waiting []*launched
	lanes   uint64
	kernels map[ran]bool
}

// ran is a kernel of an image that has run.
type ran struct{ image, kernel string }

type launched struct {
	*machine.Launch
	image string
	done  chan error
}

// launch runs a kernel with those of the other ranks: every rank that is there has to launch one, or leave.
func (c *cluster) launch(image string, l *machine.Launch) error {
	x := &launched{l, image, make(chan error, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, x)
	c.mu.Unlock()
	c.together()
	return <-x.done
}

// leave says that a rank launches nothing any more.
func (c *cluster) leave() {
	c.mu.Lock()
	c.ranks--
	c.mu.Unlock()
	c.together()
}

// together runs what was launched, if all ranks are there.
func (c *cluster) together() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || len(c.waiting) < c.ranks {
		return
	}
	batch := make([]*machine.Launch, 0, len(c.waiting))
	for r := range maxRanks { // in the order of ranks, whoever came first
		for _, x := range c.waiting {
			if x.Device == r {
				batch = append(batch, x.Launch)
				c.kernels[ran{x.image, x.Kernel}] = true
			}
		}
	}
	o := c.options
	o.Seed += c.runs
	c.runs++
	m := machine.New(c.memory, o)
	err := m.Run(batch...)
	c.lanes += m.Lanes
	for _, x := range c.waiting {
		x.done <- err
	}
	c.waiting = nil
}

const maxRanks = 8

var (
	_ device.Device = (*gpu)(nil)
	_ device.Engine = (*gpu)(nil)
	_ device.Marker = (*gpu)(nil)
)
