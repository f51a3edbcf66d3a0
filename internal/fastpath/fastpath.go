// Package fastpath makes calls of collectives without Go. A call from C that Go performs costs the way into Go, and all
// that it does there for each call; most calls of a program are repetitions of others, and only their buffers differ.
// So Go publishes each call in a table: its kernel, shape and arguments. C looks there first.
//
// Table and calls are those of one communicator. The number of the last call, and the blocks that may be waiting, are in
// the hands of one side at a time: Go takes them back when it makes a call, and gives them away behind that. Each change
// of tables, of exchanged memory, and the like, ends the epoch of the table, and its entries count no more.
package fastpath

// #include <stdlib.h>
// #include "fastpath.h"
import "C"

import (
	_ "embed" // the header, for C of other packages
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Header is the header of the C side.
//
//go:embed fastpath.h
var Header string

// Table holds the published calls of a communicator. The methods of nil do nothing.
type Table struct {
	c      *C.struct_fastpath_table
	owner  any
	closed atomic.Bool
	epoch  uint64                 // when it was taken back last
	last   atomic.Pointer[uint64] // how many calls C has made, once c is for the next communicator
}

// Key is a call, apart from its buffers.
type Key struct {
	Count                uint64
	Stream               uintptr
	Kind, Type, Op, Root uint32
}

// Kernel is how a kernel is launched: by Launch of package device/cuda.
type Kernel struct{ Launch, Context, Function uintptr }

// Range is a range of addresses.
type Range struct{ From, To uintptr }

// Entry is what a call became.
type Entry struct {
	Key
	InPlace           bool
	Between           int64 // from the output to the input, of calls in place
	InBytes, OutBytes uint64
	Kernel
	StreamID    uint64  // 0: the handle says enough
	Identify    uintptr // the C function that returns it for a context and a stream
	Grid, Block uint32
	Overlap     bool
	Arguments   []byte
}

// Shared is what calls of Go and C change.
type Shared struct {
	Sequence uint64
	Waiting  uint32
	Most     uint32 // blocks that may be waiting, on the stream of the last call
}

// Layout is where arguments have what differs between calls, and what is written there.
type Layout struct {
	Input, Output, Sequence, Release uintptr
	AtOnce, Sent, Met                uint32
	Most, Early                      uint32     // blocks that may be waiting; threads that may let the next kernel begin at once
	Step                             uint64     // of the sequence
	Words                            [4]*uint32 // of the communicator
}

// MostArguments is how many bytes of arguments an entry has.
const MostArguments = C.FASTPATH_ARGUMENTS

var tables = struct {
	sync.Mutex
	enabled bool
	of      map[any]*Table
	free    []*C.struct_fastpath_table
}{of: map[any]*Table{}}

// Enable has New make tables: for a library that has callers in C.
func Enable() {
	tables.Lock()
	defer tables.Unlock()
	tables.enabled = true
}

// Function is where fastpath_call is.
func Function() uintptr { return uintptr(C.fastpath_call) }

// New makes the table of a communicator, which C cannot use before Bind; nil if no library has enabled them.
func New(communicator any, l *Layout) *Table {
	tables.Lock()
	defer tables.Unlock()
	if !tables.enabled {
		return nil
	}
	var c *C.struct_fastpath_table
	if n := len(tables.free); n > 0 {
		c, tables.free = tables.free[n-1], tables.free[:n-1]
	} else if c = (*C.struct_fastpath_table)(C.calloc(1, C.sizeof_struct_fastpath_table)); c == nil {
		return nil
	}
	t := &Table{c: c, owner: communicator}
	c.sequence, c.calls, c.waiting = 0, 0, 0
	c.step, c.most, c.early = C.uint64_t(l.Step), C.uint32_t(l.Most), C.uint32_t(l.Early)
	c.at_once, c.sent, c.met = C.uint32_t(l.AtOnce), C.uint32_t(l.Sent), C.uint32_t(l.Met)
	c.at_input, c.at_output = C.uint32_t(l.Input), C.uint32_t(l.Output)
	c.at_sequence, c.at_release = C.uint32_t(l.Sequence), C.uint32_t(l.Release)
	t.Observe(Board{})
	for i, w := range l.Words { // memory that is not Go's
		c.words[i] = (*C.uint32_t)(unsafe.Pointer(w))
	}
	t.Invalidate() // entries of an earlier owner
	tables.of[communicator] = t
	return t
}

// Board is where calls are counted for observers: Words of package observe.
type Board struct {
	On                         *uint32
	Begun, Ended, Bytes, Total *uint64
	Kind, Algorithm            *uint32
}

// Observe has C count its calls there, and make none while records are wanted. The memory is not Go's.
func (t *Table) Observe(b Board) {
	if t == nil {
		return
	}
	t.c.words[len(t.c.words)-1] = (*C.uint32_t)(unsafe.Pointer(b.On))
	c := &t.c.board
	c.begun, c.ended = (*C.uint64_t)(unsafe.Pointer(b.Begun)), (*C.uint64_t)(unsafe.Pointer(b.Ended))
	c.bytes, c.total = (*C.uint64_t)(unsafe.Pointer(b.Bytes)), (*C.uint64_t)(unsafe.Pointer(b.Total))
	c.kind, c.algorithm = (*C.uint32_t)(unsafe.Pointer(b.Kind)), (*C.uint32_t)(unsafe.Pointer(b.Algorithm))
}

// Of returns the table of a communicator, or nil.
func Of(communicator any) *Table {
	tables.Lock()
	defer tables.Unlock()
	return tables.of[communicator]
}

// Bind names the handle by which C calls the communicator. It returns where the table is.
func (t *Table) Bind(handle uint64) uintptr {
	if t == nil {
		return 0
	}
	if _, ok := t.Take(nil); !ok { // C does not know it yet, so nobody calls
		return 0
	}
	t.c.owner = C.uint64_t(handle)
	return uintptr(unsafe.Pointer(t.c))
}

func (t *Table) lock() *uint32 { return (*uint32)(unsafe.Pointer(&t.c.lock)) }
func (t *Table) open() *uint32 { return (*uint32)(unsafe.Pointer(&t.c.open)) }
func (t *Table) age() *uint64  { return (*uint64)(unsafe.Pointer(&t.c.epoch)) }

// Invalidate ends the epoch: Go makes each call once more. A call that C is about to make counts as one before that.
func (t *Table) Invalidate() {
	if t != nil {
		atomic.AddUint64(t.age(), 1)
	}
}

// Take has C make no calls until Give, and waits for one that it makes: as long as a launch takes, which for a stream that is full is
// until kernels have ended. Once over says so, nothing can be expected of these any more; then it waits for Patience,
// and is false if the launch has not returned.
func (t *Table) Take(over func() bool) (s Shared, ok bool) {
	var until time.Time
	ok = t.shut(func() bool {
		switch {
		case over == nil || !over():
		case until.IsZero():
			until = time.Now().Add(patience)
		default:
			return time.Now().After(until)
		}
		return false
	})
	if !ok {
		return Shared{}, false
	}
	t.epoch = atomic.LoadUint64(t.age())
	return Shared{uint64(t.c.sequence), uint32(t.c.waiting), uint32(t.c.most)}, true
}

// Patience is how long a launch of C may take whose communicator has ended.
const Patience = 5 * time.Second

var patience = Patience // less in a test

// shut is false if a launch has not returned when enough says so.
func (t *Table) shut(enough func() bool) bool {
	atomic.StoreUint32(t.open(), 0)
	for n := 0; !atomic.CompareAndSwapUint32(t.lock(), 0, 1); n++ {
		switch {
		case n < 100:
			runtime.Gosched()
		case enough():
			return false
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
	atomic.StoreUint32(t.lock(), 0)
	return true
}

// Exchanged says which memory is exchanged in this epoch: C makes no calls with buffers there. It is false if these are too many.
func (t *Table) Exchanged(list []Range) bool {
	if len(list) > C.FASTPATH_RANGES {
		return false
	}
	for i, r := range list {
		t.c.exchanged[i] = C.struct_fastpath_range{from: C.uintptr_t(r.From), to: C.uintptr_t(r.To)}
	}
	t.c.ranges = C.uint32_t(len(list))
	return true
}

// Publish has C make calls like this one, once it has the table.
func (t *Table) Publish(e *Entry) {
	key := C.struct_fastpath_key{
		count: C.uint64_t(e.Count), stream: C.uintptr_t(e.Stream), kind: C.uint32_t(e.Kind), _type: C.uint32_t(e.Type), op: C.uint32_t(e.Op), root: C.uint32_t(e.Root),
	}
	c := &t.c.entries[place(&e.Key, e.InPlace && e.Between == 0)]
	c.key, c.epoch = key, C.uint64_t(t.epoch)
	c.in_place, c.overlap = word(e.InPlace), word(e.Overlap)
	c.between, c.in_bytes, c.out_bytes = C.int64_t(e.Between), C.uint64_t(e.InBytes), C.uint64_t(e.OutBytes)
	c.launch, c.context, c.function = C.uintptr_t(e.Launch), C.uintptr_t(e.Context), C.uintptr_t(e.Function)
	c.stream_id, c.identify = C.uint64_t(e.StreamID), C.uintptr_t(e.Identify)
	c.grid, c.block, c.bytes = C.uint32_t(e.Grid), C.uint32_t(e.Block), C.uint64_t(len(e.Arguments))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c.arguments[0])), MostArguments), e.Arguments)
	if b := &t.c.board; b.begun != nil { // the call is the one that was counted last
		c.seen_bytes, c.seen_kind, c.seen_algorithm = *b.bytes, *b.kind, *b.algorithm
	}
}

// place is where an entry is: as in fastpath.c.
func place(k *Key, inPlace bool) uint32 {
	h := (k.Count ^ uint64(k.Kind)<<48 ^ uint64(k.Type)<<40 ^ uint64(k.Op)<<32 ^ uint64(k.Root)<<20) * 0x9e3779b97f4a7c15
	return uint32(h>>58) ^ uint32(word(inPlace))
}

func word(b bool) C.uint32_t {
	if b {
		return 1
	}
	return 0
}

// Give has C make calls from now on, behind those that s counts, if it may.
func (t *Table) Give(s Shared, may bool) {
	t.c.sequence, t.c.waiting, t.c.most = C.uint64_t(s.Sequence), C.uint32_t(s.Waiting), C.uint32_t(s.Most)
	if may && !t.closed.Load() {
		atomic.StoreUint32(t.open(), 1)
	}
}

// Enter computes in C how a launch behind others is made: when the next one may begin, how many blocks may be waiting then,
// and whether it overlaps with the one before. Package intra does the same in Go, and its tests compare both.
func (l *Layout) Enter(grid, block, waiting uint32, overlap bool) (when, behind uint32, overlaps bool) {
	t := C.struct_fastpath_table{
		most: C.uint32_t(l.Most), early: C.uint32_t(l.Early), at_once: C.uint32_t(l.AtOnce), sent: C.uint32_t(l.Sent), met: C.uint32_t(l.Met),
	}
	w, o := C.uint32_t(waiting), C.int(word(overlap))
	when = uint32(C.fastpath_enter(&t, C.uint32_t(grid), C.uint32_t(block), &w, &o))
	return when, uint32(w), o != 0
}

// Calls is how many calls C has made. It may be asked at any time.
func (t *Table) Calls() uint64 {
	if t == nil {
		return 0
	}
	n := atomic.LoadUint64((*uint64)(unsafe.Pointer(&t.c.calls)))
	if last := t.last.Load(); last != nil {
		return *last
	}
	return n
}

// Close ends the table. It is false if C is in a launch that has not returned at the given time: see Left.
func (t *Table) Close(until time.Time) bool {
	if t == nil || t.closed.Swap(true) {
		return true
	}
	tables.Lock()
	if tables.of[t.owner] == t {
		delete(tables.of, t.owner)
	}
	tables.Unlock()
	return t.Left(until)
}

// Left waits, after Close, for a launch of C.
func (t *Table) Left(until time.Time) bool {
	if !t.shut(func() bool { return time.Now().After(until) }) {
		return false
	}
	t.c.owner = 0
	calls := uint64(t.c.calls)
	t.last.Store(&calls)
	tables.Lock()
	defer tables.Unlock()
	tables.free = append(tables.free, t.c)
	return true
}
