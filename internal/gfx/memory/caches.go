package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
)

// Shape is how many caches a GPU has.
type Shape struct {
	Arch string // "gfx942" or "gfx90a"
	XCDs int    // each with a second cache
	CUs  int    // of an XCD, each with a first cache
	Keep bool   // nothing is evicted: what is stale remains so
}

// Caches is memory behind caches, as an operational model: what a load may return is what some order of fills,
// write-backs, evictions and probes leaves in the caches on its way. Where documents leave something open, the model
// takes the side that finds more mistakes.
//
//   - Each compute unit has a first cache, through which stores pass. Loads for more than the group miss it.
//   - Each XCD has a second cache. It treats memory by its type: see kind.
//   - A write that reaches memory drops lines of it from the second caches of the owner; those of other GPUs keep theirs.
//   - The caches of the XCDs of one GPU do not see each other's stores until these are written back.
//   - Lines are evicted at random.
type Caches struct {
	*Regions
	shape Shape
	gpus  []*gpu
}

type gpu struct {
	first  [][]*cache // by XCD and compute unit
	second []*cache   // by XCD
}

// NewCaches makes the caches of some GPUs over memory.
func NewCaches(r *Regions, gpus int, s Shape) *Caches {
	c := &Caches{Regions: r, shape: s}
	for range gpus {
		g := &gpu{}
		for range s.XCDs {
			g.second = append(g.second, newCache())
			var units []*cache
			for range s.CUs {
				units = append(units, newCache())
			}
			g.first = append(g.first, units)
		}
		c.gpus = append(c.gpus, g)
	}
	return c
}

// kind is how the second cache treats memory: the type in the page table.
type kind uint8

const (
	readWrite   kind = iota // kept, and dropped when others write
	nonCoherent             // kept, and nobody says when others write
	uncached                // not kept
)

// kinds gives the type of memory as a GPU sees it: of its own, of others, of the host.
func (c *Caches) kind(device int, r *Region) kind {
	switch {
	case r.Kind != Coarse || r.Owner == Host:
		return uncached
	case r.Owner == device:
		return readWrite
	}
	return nonCoherent
}

// Core implements machine.Memory: blocks are dealt to XCDs in turn, as the hardware does.
func (c *Caches) Core(device int, block uint32) machine.Core {
	n := int(block)
	return machine.Core{Device: device, XCD: n % c.shape.XCDs, CU: n / c.shape.XCDs % c.shape.CUs}
}

// Discard drops what caches have of memory that is given back: others may get its addresses.
func (c *Caches) Discard(start, end uint64) {
	for _, g := range c.gpus {
		for x, second := range g.second {
			for _, one := range append(slices.Clone(g.first[x]), second) {
				for _, base := range slices.Clone(one.order) {
					if base+lineBytes > start && base < end {
						one.remove(base)
					}
				}
			}
		}
	}
}

// Begin implements machine.Memory: a kernel sees what was there before it.
func (c *Caches) Begin(device int) {
	g := c.gpus[device]
	for x, second := range g.second {
		second.drop(func(*line) bool { return true })
		for _, first := range g.first[x] {
			first.clear()
		}
	}
}

// End implements machine.Memory: what a kernel wrote is there behind it. So have to be the stores of others into memory of
// its GPU, because the host takes the kernel's results now.
func (c *Caches) End(device int) error {
	for x := range c.gpus[device].second {
		if err := c.WriteBack(machine.Core{Device: device, XCD: x}); err != nil {
			return err
		}
	}
	for d, g := range c.gpus {
		for x, second := range g.second {
			for _, base := range second.order {
				l := second.lines[base]
				if d == device || l.dirty == (mask{}) {
					continue
				}
				if r, err := c.find(base+uint64(l.dirty.first()), 1); err == nil && r.Owner == device {
					return fmt.Errorf("the kernel has ended, and what device %d stored at %#x, of device %d, is still in the cache of its XCD %d",
						d, base+uint64(l.dirty.first()), device, x)
				}
			}
		}
	}
	return nil
}

func (c *Caches) caches(at machine.Core) (first, second *cache) {
	g := c.gpus[at.Device]
	return g.first[at.XCD][at.CU], g.second[at.XCD]
}

// Load implements machine.Memory.
func (c *Caches) Load(at machine.Core, s machine.Scope, addr uint64, size int, data *[4]uint32) error {
	if err := aligned(addr, size); err != nil {
		return err
	}
	r, err := c.find(addr, size)
	if err != nil {
		return err
	}
	if r.Kind == constant { // its places differ from run to run, and must not decide about evictions
		read(addr, size, data)
		return nil
	}
	first, second := c.caches(at)
	var bytes [16]byte
	for done := 0; done < size; { // an access may cross lines
		n := min(size-done, int(lineBytes-(addr+uint64(done))%lineBytes))
		c.loadPart(first, second, c.kind(at.Device, &r), s, &r, addr+uint64(done), bytes[done:done+n])
		done += n
	}
	unpack(bytes[:size], data)
	return nil
}

func (c *Caches) loadPart(first, second *cache, k kind, s machine.Scope, r *Region, addr uint64, to []byte) {
	base, m := split(addr, len(to))
	if s < machine.Agent {
		if l := first.find(base); l != nil && l.valid.has(m) {
			copy(to, l.data[addr-base:])
			return
		}
	} else {
		first.remove(base)
	}
	if k == uncached {
		direct(addr, to)
		if s < machine.Agent {
			first.line(base).put(addr-base, to, false)
		}
		return
	}
	l := second.line(base)
	if !l.valid.has(m) {
		l.fill(base, r)
	}
	l.kind = k
	copy(to, l.data[addr-base:])
	if s < machine.Agent {
		own := first.line(base)
		own.data, own.valid = l.data, l.valid
	}
}

// Store implements machine.Memory.
func (c *Caches) Store(at machine.Core, s machine.Scope, addr uint64, size int, data *[4]uint32) error {
	r, err := c.writable(addr, size)
	if err != nil {
		return err
	}
	first, second := c.caches(at)
	var bytes [16]byte
	pack(data, bytes[:size])
	k := c.kind(at.Device, &r)
	for done := 0; done < size; {
		n := min(size-done, int(lineBytes-(addr+uint64(done))%lineBytes))
		part, a := bytes[done:done+n], addr+uint64(done)
		base, m := split(a, n)
		if l := first.find(base); l != nil {
			l.put(a-base, part, false)
		}
		if k != uncached && s < machine.Agent {
			l := second.line(base)
			l.kind = k
			l.put(a-base, part, true)
		} else {
			if l := second.find(base); l != nil {
				l.put(a-base, part, false)
				l.dirty.clear(m)
			}
			c.toMemory(second, &r, a, part)
		}
		done += n
	}
	return nil
}

// toMemory writes bytes to memory. The second caches of the owner, but the writer's, drop them.
func (c *Caches) toMemory(writer *cache, r *Region, addr uint64, bytes []byte) {
	store(addr, bytes)
	if r.Owner == Host || c.shape.Arch == "gfx90a" { // other GPUs do not probe its caches
		return
	}
	base, m := split(addr, len(bytes))
	for _, second := range c.gpus[r.Owner].second {
		if second == writer {
			continue
		}
		if l := second.find(base); l != nil {
			l.valid.clear(m.without(l.dirty))
		}
	}
}

// Atomic implements machine.Memory. It is performed where all see it, but one that is for the own GPU alone, on memory
// of another one, in the own second cache.
func (c *Caches) Atomic(at machine.Core, s machine.Scope, o machine.Operation, addr uint64, size int, data *[4]uint32) error {
	r, err := c.writable(addr, size)
	if err != nil {
		return err
	}
	if addr%uint64(size) != 0 {
		return fmt.Errorf("atomic operation on %d bytes at %#x: the address is not aligned", size, addr)
	}
	first, second := c.caches(at)
	base, m := split(addr, size)
	first.remove(base)
	if s&machine.Agent == 0 && c.kind(at.Device, &r) == nonCoherent { // sc0 says that the old value is returned
		return c.atomicHere(second, &r, o, addr, size, data)
	}
	if l := second.find(base); l != nil {
		c.writeLine(second, base, l)
		l.valid.clear(m)
	}
	if err := modify(o, addr, size, data); err != nil {
		return err
	}
	var now [8]byte
	direct(addr, now[:size])
	c.toMemory(second, &r, addr, now[:size])
	return nil
}

func (c *Caches) atomicHere(second *cache, r *Region, o machine.Operation, addr uint64, size int, data *[4]uint32) error {
	base, m := split(addr, size)
	l := second.line(base)
	if !l.valid.has(m) {
		l.fill(base, r)
	}
	l.kind = nonCoherent
	var word [2]uint64 // of the line, where an operation on memory can be performed
	copy(slice(&word, size), l.data[addr-base:])
	if err := modify(o, address(&word), size, data); err != nil {
		return err
	}
	l.put(addr-base, slice(&word, size), true)
	return nil
}

// Invalidate implements machine.Memory.
func (c *Caches) Invalidate(at machine.Core, s machine.Scope, dropFirst, dropSecond bool) {
	if s < machine.Agent {
		return
	}
	first, second := c.caches(at)
	if dropFirst {
		first.clear()
	}
	if dropSecond {
		second.drop(func(l *line) bool { return l.kind == nonCoherent })
	}
}

// WriteBack implements machine.Memory.
func (c *Caches) WriteBack(at machine.Core) error {
	second := c.gpus[at.Device].second[at.XCD]
	for _, base := range second.order {
		c.writeLine(second, base, second.lines[base])
	}
	return nil
}

// writeLine writes what is dirty in a line.
func (c *Caches) writeLine(second *cache, base uint64, l *line) {
	if l.dirty == (mask{}) {
		return
	}
	r, err := c.find(base+uint64(l.dirty.first()), 1)
	if err != nil {
		return // memory that was given back
	}
	for i := uint64(0); i < lineBytes; {
		if !l.dirty.bit(i) {
			i++
			continue
		}
		end := i
		for end < lineBytes && l.dirty.bit(end) {
			end++
		}
		c.toMemory(second, &r, base+i, l.data[i:end])
		i = end
	}
	l.dirty = mask{}
}

// Drift implements machine.Memory: now and then a line is evicted.
func (c *Caches) Drift(random *rand.Rand) {
	if c.shape.Keep || random.IntN(4) != 0 {
		return
	}
	g := c.gpus[random.IntN(len(c.gpus))]
	x := random.IntN(len(g.second))
	if random.IntN(2) == 0 {
		first := g.first[x][random.IntN(len(g.first[x]))]
		if n := len(first.order); n > 0 {
			first.remove(first.order[random.IntN(n)])
		}
		return
	}
	second := g.second[x]
	if n := len(second.order); n > 0 {
		base := second.order[random.IntN(n)]
		c.writeLine(second, base, second.lines[base])
		second.remove(base)
	}
}

var _ machine.Memory = (*Caches)(nil)
