package memory

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"unsafe"
)

// lineBytes is the size of a line of both caches.
const lineBytes = 128

// mask has a bit for each byte of a line.
type mask [2]uint64

func (m *mask) has(o mask) bool { return o[0]&^m[0] == 0 && o[1]&^m[1] == 0 }

func (m *mask) set(o mask) { m[0], m[1] = m[0]|o[0], m[1]|o[1] }

func (m *mask) clear(o mask) { m[0], m[1] = m[0]&^o[0], m[1]&^o[1] }

func (m mask) without(o mask) mask { return mask{m[0] &^ o[0], m[1] &^ o[1]} }

func (m *mask) bit(n uint64) bool { return m[n/64]>>(n%64)&1 != 0 }

func (m *mask) first() int {
	if m[0] != 0 {
		return bits.TrailingZeros64(m[0])
	}
	return 64 + bits.TrailingZeros64(m[1])
}

// split gives the line of an address, and the bytes of an access in it.
func split(addr uint64, size int) (base uint64, m mask) {
	at := addr % lineBytes
	for i := at; i < at+uint64(size); i++ {
		m[i/64] |= 1 << (i % 64)
	}
	return addr - at, m
}

// line is a line of a cache.
type line struct {
	data         [lineBytes]byte
	valid, dirty mask
	kind         kind
	at           int // in the order of its cache
}

func (l *line) put(at uint64, bytes []byte, dirty bool) {
	copy(l.data[at:], bytes)
	_, m := split(at, len(bytes))
	l.valid.set(m)
	if dirty {
		l.dirty.set(m)
	}
}

// fill reads all of a line that its region has, but what is dirty.
func (l *line) fill(base uint64, r *Region) {
	var fresh [lineBytes]byte
	start, end := max(base, r.Start), min(base+lineBytes, r.End)
	direct(start, fresh[start-base:end-base])
	for i := start - base; i < end-base; i++ {
		if !l.dirty.bit(i) {
			l.data[i] = fresh[i]
		}
	}
	_, m := split(start-base, int(end-start))
	l.valid.set(m)
}

// cache is a set of lines. Their order makes a random choice among them repeatable.
type cache struct {
	lines map[uint64]*line
	order []uint64
}

func newCache() *cache { return &cache{lines: map[uint64]*line{}} }

func (c *cache) find(base uint64) *line { return c.lines[base] }

// line returns a line, which is empty if it was not there.
func (c *cache) line(base uint64) *line {
	l := c.lines[base]
	if l == nil {
		l = &line{at: len(c.order)}
		c.lines[base] = l
		c.order = append(c.order, base)
	}
	return l
}

func (c *cache) remove(base uint64) {
	l := c.lines[base]
	if l == nil {
		return
	}
	last := c.order[len(c.order)-1]
	c.order[l.at] = last
	c.lines[last].at = l.at
	c.order = c.order[:len(c.order)-1]
	delete(c.lines, base)
}

func (c *cache) clear() {
	clear(c.lines)
	c.order = c.order[:0]
}

// drop makes lines invalid, but for what is dirty in them.
func (c *cache) drop(which func(*line) bool) {
	for _, base := range slices.Clone(c.order) {
		l := c.lines[base]
		if !which(l) {
			continue
		}
		if l.valid = l.dirty; l.dirty == (mask{}) {
			c.remove(base)
		}
	}
}

// direct reads from the process's memory, in words where the host may be storing words.
func direct(addr uint64, to []byte) {
	for at := 0; at < len(to); {
		a := addr + uint64(at)
		n := piece(a, len(to)-at)
		var data [4]uint32
		read(a, n, &data)
		var b [16]byte
		pack(&data, b[:n])
		copy(to[at:], b[:n])
		at += n
	}
}

// store writes to the process's memory.
func store(addr uint64, from []byte) {
	for at := 0; at < len(from); {
		a := addr + uint64(at)
		n := piece(a, len(from)-at)
		var data [4]uint32
		unpack(from[at:at+n], &data)
		write(a, n, &data)
		at += n
	}
}

// piece is how many bytes are accessed as a whole.
func piece(addr uint64, rest int) int {
	for _, n := range []int{8, 4, 2} {
		if addr%uint64(n) == 0 && rest >= n {
			return n
		}
	}
	return 1
}

func pack(data *[4]uint32, to []byte) {
	var all [16]byte
	for i, v := range data {
		binary.LittleEndian.PutUint32(all[4*i:], v)
	}
	copy(to, all[:])
}

func unpack(from []byte, data *[4]uint32) {
	var all [16]byte
	copy(all[:], from)
	for i := range (len(from) + 3) / 4 {
		data[i] = binary.LittleEndian.Uint32(all[4*i:])
	}
}

func slice(word *[2]uint64, size int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(word)), size)
}

func address(word *[2]uint64) uint64 { return uint64(uintptr(unsafe.Pointer(word))) }
