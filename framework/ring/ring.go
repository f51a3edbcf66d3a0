// Package ring is the queue between code that asks for data to be moved and the proxy that moves
// it: 16-byte triggers in a memfd that kernels, host code and a proxy in another process map at the
// same time. Its layout is that of mscclpp/layout.h.
//
// A producer takes a position by raising head, and writes its trigger into slot
// position mod slots. Bit 63 of the second word is the trigger's commit bit: it is 1 in
// even laps and 0 in odd ones, so a slot need not be cleared, and zeroed memory reads
// as empty. The producer writes the first word before the second, which it stores with
// release; the consumer reads them in the opposite order, with acquire. The consumer
// then performs the trigger and raises tail, which frees the slot.
//
// A consumer in the producer's process may let pushes and waits perform the triggers on
// their own threads, so that no thread has to wake for them: see Assist.
//
// A consumer without work sleeps on the word parked. Producers on the host look at this
// word after each push, which costs them one load. The consumer raises it and then
// looks at its slot once more, so that one of the two sees the other. Kernels of a GPU
// cannot wake the consumer, so a consumer that serves them must not park for long.
//
// A proxy that ends leaves its reason in the error word. Waits for room and for
// flushes watch that word.
package ring

import (
	_ "embed"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// headerForC is embedded for the builds of packages that include it: they do not notice that
// a header in another package has changed, but that a package which they import has.
//
//go:embed ring.h
var headerForC string

// MaxSlots bounds the size of a ring, so that one from elsewhere cannot ask for
// all memory.
const MaxSlots = 1 << 20

// Ring is one process's view of a ring. Producers may use it concurrently; only
// one goroutine at a time, in one process, may consume.
type Ring struct {
	mem      *memfd.Memory
	header   *kernel.RingHeader
	triggers unsafe.Pointer
	slots    uint64 // a copy: the shared word is not ours alone to write
	shift    uint32
	control  atomic.Pointer[kernel.WaitControl]
	helper   framework.Helper
	crowd    Crowd // of the thread that waits here

	tail      uint64 // consumer's own count; the shared word only publishes it
	closeOnce sync.Once
	closeErr  error
}

// New makes a ring; slots must be a power of two.
func New(slots int) (*Ring, error) {
	if slots < 1 || slots > MaxSlots || bits.OnesCount(uint(slots)) != 1 {
		return nil, fmt.Errorf("ring: %w: %d slots: expected a power of two up to %d", framework.ErrInvalid, slots, MaxSlots)
	}
	mem, err := memfd.New("mscclpp-ring", size(uint64(slots)), memfd.Options{})
	if err != nil {
		return nil, fmt.Errorf("ring of %d slots: %w", slots, err)
	}
	r := view(mem, uint64(slots))
	r.header.Magic = kernel.RingMagic
	r.header.Version = kernel.RingVersion
	r.header.Slots = uint32(slots)
	return r, nil
}

// Open maps the ring behind a share, which may come from a process that is not
// trusted: nothing that it writes later can make this process fault.
func Open(s framework.Share) (*Ring, error) {
	if s.Kind != framework.ShareMemFD {
		return nil, fmt.Errorf("ring: %w: share of kind %s: expected %s", framework.ErrUnsupported, s.Kind, framework.ShareMemFD)
	}
	head, err := memfd.Open(s.FD, 0, kernel.RingTriggers)
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	h := *(*kernel.RingHeader)(head.Addr()) // copy, then check, then use
	head.Close()
	switch {
	case h.Magic != kernel.RingMagic:
		return nil, fmt.Errorf("ring: %w: memfd is no ring: magic %#x", framework.ErrInvalid, h.Magic)
	case h.Version != kernel.RingVersion:
		return nil, fmt.Errorf("ring: %w: version %d: expected %d", framework.ErrInvalid, h.Version, kernel.RingVersion)
	case h.Slots == 0 || h.Slots > MaxSlots || bits.OnesCount32(h.Slots) != 1:
		return nil, fmt.Errorf("ring: %w: %d slots: expected a power of two up to %d", framework.ErrInvalid, h.Slots, MaxSlots)
	}
	mem, err := memfd.Open(s.FD, 0, size(uint64(h.Slots)))
	if err != nil {
		return nil, fmt.Errorf("ring of %d slots: %w", h.Slots, err)
	}
	r := view(mem, uint64(h.Slots))
	r.tail = atomic.LoadUint64(&r.header.Tail)
	return r, nil
}

func size(slots uint64) uint64 {
	return kernel.RingTriggers + slots*uint64(unsafe.Sizeof(kernel.Trigger{}))
}

func view(mem *memfd.Memory, slots uint64) *Ring {
	return &Ring{
		mem:      mem,
		header:   (*kernel.RingHeader)(mem.Addr()),
		triggers: unsafe.Add(mem.Addr(), kernel.RingTriggers),
		slots:    slots,
		shift:    uint32(bits.TrailingZeros64(slots)),
	}
}

// Slots returns how many triggers fit.
func (r *Ring) Slots() int { return int(r.slots) }

// Share returns the share by which a proxy opens the ring; the caller owns it. Only the
// process that made the ring has one.
func (r *Ring) Share() (framework.Share, error) {
	if r.mem.File() == nil {
		return framework.Share{}, fmt.Errorf("ring: %w: share of a ring that was opened", framework.ErrUnsupported)
	}
	return framework.Share{Kind: framework.ShareMemFD, FD: r.mem.File()}.Dup()
}

// Watch lets pushes and waits from Go end when the communicator that owns the words
// ends.
func (r *Ring) Watch(words *kernel.WaitControl) { r.control.Store(words) }

// Assist names the helper that performs triggers on its caller's thread, for a consumer in this
// process: pushes and waits from Go call it. It has to be set before any other thread has the ring.
func (r *Ring) Assist(h framework.Helper) { r.helper = h }

// Help is for threads that wait for the consumer: if it is in this process, they do its work
// themselves. Soon says that another call of Help may bring what they wait for, so that they should
// not only poll.
func (r *Ring) Help() (soon bool) { return r.helper != nil && r.helper.Help(true) }

// Begin begins a wait for something that the consumer does. If the consumer is in
// another process, the two must not keep each other from the core.
func (r *Ring) Begin() Pace { return Begin(&r.crowd, r.helper == nil) }

// Handle returns what kernels on the host push through. Control is the address of
// the communicator's device.WaitControl, or 0; from here on pushes from Go watch
// it as well.
func (r *Ring) Handle(control uintptr) kernel.FifoHandle {
	r.Watch((*kernel.WaitControl)(at(control)))
	h := r.header
	return kernel.FifoHandle{
		Triggers:  uintptr(r.triggers),
		Head:      uintptr(unsafe.Pointer(&h.Head)),
		Tail:      uintptr(unsafe.Pointer(&h.Tail)),
		TailCache: uintptr(unsafe.Pointer(&h.TailCache)),
		Error:     uintptr(unsafe.Pointer(&h.Error)),
		Parked:    uintptr(unsafe.Pointer(&h.Parked)),
		Control:   control,
		Mask:      uint32(r.slots - 1),
		Shift:     r.shift,
	}
}

// View says where a device that is not the host finds a ring. All are addresses as
// its kernels use them.
type View struct {
	Base     uintptr // of the ring's memory, mapped from its Share
	Counters uintptr // of CounterBytes of zeroed memory of the device
	Control  uintptr // of the communicator's device.WaitControl, or 0
}

// CounterBytes is the size of the memory in which kernels of a device count their
// pushes. It is memory of the device: the device's atomics do not reach across the bus,
// and reading host memory takes it a microsecond.
const CounterBytes = 128

// HandleOn returns what kernels of a device push through. Only they may then push to
// the ring, since they do not count in the ring itself. They cannot wake a consumer
// that sleeps.
func (r *Ring) HandleOn(v View) kernel.FifoHandle {
	var h kernel.RingHeader
	return kernel.FifoHandle{
		Triggers:  v.Base + kernel.RingTriggers,
		Head:      v.Counters,
		Tail:      v.Base + unsafe.Offsetof(h.Tail),
		TailCache: v.Counters + 8,
		Error:     v.Base + unsafe.Offsetof(h.Error),
		Control:   v.Control,
		Mask:      uint32(r.slots - 1),
		Shift:     r.shift,
	}
}

// Bytes returns the size of the ring's memory.
func (r *Ring) Bytes() uint64 { return size(r.slots) }

// Depth returns how many triggers were pushed, by any producer, and not yet performed. It looks at
// every slot that is in use.
func (r *Ring) Depth() uint64 {
	tail := r.Tail()
	n := uint64(0)
	for n < r.slots && atomic.LoadUint64(&r.slot(tail+n).Snd)&commitBit == r.commit(tail+n) {
		n++
	}
	return n
}

// Tail returns how many triggers were performed, as the consumer has published it.
func (r *Ring) Tail() uint64 { return atomic.LoadUint64(&r.header.Tail) }

// Close unmaps the ring. Pushes, waits and consumers must have ended: the caller has
// stopped its kernels and its proxy.
func (r *Ring) Close() error {
	r.closeOnce.Do(func() { r.closeErr = r.mem.Close() })
	return r.closeErr
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// slot returns the trigger at a position.
func (r *Ring) slot(pos uint64) *kernel.Trigger {
	return (*kernel.Trigger)(unsafe.Add(r.triggers, (pos&(r.slots-1))*uint64(unsafe.Sizeof(kernel.Trigger{}))))
}

// commit is the value of the commit bit of a position.
func (r *Ring) commit(pos uint64) uint64 { return (pos>>r.shift&1 ^ 1) << 63 }

// Base returns the address at which the ring is mapped here, for proxies whose loop
// is not written in Go, and the position of the next trigger.
func (r *Ring) Base() (addr unsafe.Pointer, tail uint64) { return r.mem.Addr(), r.tail }
