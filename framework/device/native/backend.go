// Package native is a device behind a table of C functions (mscclpp/device_backend.h), which a maker of devices brings as a
// shared object. It knows no maker: names, architectures of images, kinds of shares and the words of errors are in the table.
//
// The table's functions run in this process, and all that goes wrong in them does so here.
package native

// #cgo LDFLAGS: -ldl
// #cgo CFLAGS: -std=gnu11
// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	_ "github.com/mscclpp-go/mscclpp/framework/device/native/include" // so that builds notice a change of the header
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// Symbol is the function of a shared object that returns its table.
const Symbol = C.MSCCLPP_DEVICE_BACKEND_SYMBOL

// Backend is a table that was loaded. It stays for as long as the process lives: a driver leaves threads behind.
type Backend struct {
	t       C.uintptr_t // address of the table, in memory of C
	typ     string
	product string
	kinds   []shareKind
	has     uint64

	mu      sync.Mutex
	started bool
	devices int

	// streams are those that NewStream has made of any device, and the serial numbers of those that are open, else 0. The number of one that is closed means
	// nothing to the driver, unless a later stream, made elsewhere, has got it.
	streams sync.Map
	serial  atomic.Uint64 // of the last one
}

type shareKind struct {
	name     framework.ShareKind
	onDemand bool
	places   bool
}

// Load opens a shared object in sealed memory, and takes its table. Nothing of it runs before it is known to be one for
// this processor; what it does when it is loaded is its own affair. name is where it came from, for errors.
func Load(file *os.File, name string) (*Backend, error) {
	b, err := load(file)
	if err != nil {
		return nil, fmt.Errorf("device back end %s: %w", name, err)
	}
	return b, nil
}

func load(file *os.File) (*Backend, error) {
	if err := checkObject(file); err != nil {
		return nil, err
	}
	path := C.CString(uniquePath(loads.Add(1), int(file.Fd())))
	defer C.free(unsafe.Pointer(path))
	var why [512]C.char
	library := C.native_library(path, &why[0], C.size_t(len(why)))
	if library == nil {
		return nil, fmt.Errorf("%w: it cannot be loaded: %s", framework.ErrUnavailable, C.GoString(&why[0]))
	}
	found := C.native_found(library, &why[0], C.size_t(len(why)))
	if found == nil {
		C.native_unload(library)
		return nil, fmt.Errorf("%w: %s: expected a shared object with a table of %s", framework.ErrInvalid, C.GoString(&why[0]), headerName)
	}
	b, err := adopt(found, false)
	if err != nil {
		C.native_unload(library)
		return nil, err
	}
	return b, nil
}

const headerName = "mscclpp/device_backend.h"

var loads atomic.Uint32

// uniquePath names the descriptor as no other load did: the dynamic linker takes equal paths for the same object, and
// descriptors are used again. The number of the load is spelled into the path, a bit each: "/" for 0, "/." for 1.
func uniquePath(load uint32, fd int) string {
	var b strings.Builder
	b.WriteString("/proc/thread-self/fd")
	for ; load > 0; load >>= 1 {
		b.WriteByte('/')
		if load&1 == 1 {
			b.WriteByte('.')
		}
	}
	return b.String() + "/" + strconv.Itoa(fd)
}

// The table up to and with its strings; a shorter one is none.
const leastTable = C.size_t(unsafe.Offsetof(C.native_table{}.start))

var typeForm = onfirstuse.Regexp(`^[a-z][a-z0-9]{0,31}$`)

// reserved are the types that mscclpp-go has itself.
var reserved = map[string]bool{"host": true, "cuda": true, "hip": true, "auto": true}

// BuiltIn takes a table that is linked into the program, a const mscclpp_device_backend*. Its type may be one that mscclpp-go has
// itself.
func BuiltIn(table unsafe.Pointer) (*Backend, error) {
	b, err := adopt((*C.native_table)(table), true)
	if err != nil {
		return nil, fmt.Errorf("built-in table of a device: %w", err)
	}
	return b, nil
}

// adopt checks a table and copies it.
func adopt(found *C.native_table, builtIn bool) (*Backend, error) {
	size := uint64(found.size)
	if size < uint64(leastTable) || size > 1<<16 || size%8 != 0 {
		return nil, fmt.Errorf("%w: its table has a size of %d bytes: expected about %d", framework.ErrInvalid, size, uint64(C.sizeof_native_table))
	}
	if v := uint32(found.version); v != C.MSCCLPP_DEVICE_BACKEND_VERSION {
		return nil, fmt.Errorf("%w: its table has version %d: expected %d; build it again with %s of this release", framework.ErrInvalid, v, C.MSCCLPP_DEVICE_BACKEND_VERSION, headerName)
	}
	t := (*C.native_table)(C.calloc(1, C.sizeof_native_table))
	C.native_adopt(t, found)
	b := &Backend{t: C.uintptr_t(uintptr(unsafe.Pointer(t))), has: uint64(t.capabilities)}
	if err := b.read(t, builtIn); err != nil {
		C.free(unsafe.Pointer(t))
		return nil, err
	}
	return b, nil
}

func (b *Backend) read(t *C.native_table, builtIn bool) error {
	if lacking := C.native_lacks(t); lacking != nil {
		return fmt.Errorf("%w: its table lacks %s, which its capabilities %#x ask for", framework.ErrInvalid, C.GoString(lacking), b.has)
	}
	if t._type == nil || t.product == nil {
		return fmt.Errorf("%w: its table names no type of device, or no product", framework.ErrInvalid)
	}
	b.typ, b.product = C.GoString(t._type), C.GoString(t.product)
	if !typeForm().MatchString(b.typ) || reserved[b.typ] && !builtIn {
		return fmt.Errorf("%w: its type of device is %q: expected up to 32 lower-case letters and digits, other than host, cuda, hip and auto", framework.ErrInvalid, b.typ)
	}
	if needs := b.missing(); needs != "" {
		return fmt.Errorf("%w: its capabilities %#x: %s", framework.ErrInvalid, b.has, needs)
	}
	return b.readKinds(t)
}

// missing says which capability needs another one that is not there.
func (b *Backend) missing() string {
	for _, p := range []struct {
		one, needs uint64
		text       string
	}{
		{hasEvents, hasStreams, "events need streams"},
		{hasTimes | hasAllEvent, hasEvents, "times, and events of all streams, need events"},
		{hasPlaces, hasShares, "places need shares"},
		{hasMulticast, hasShares, "multicast needs shares"},
		{hasPlaces, hasRanges, "places need ranges"},
		{hasGraphs | hasWaits | hasStreamIDs | hasParts, hasStreams, "graphs, waits, numbers and parts of streams need streams"},
		{hasGraphTimes, hasTimes, "times of graphs need times of events"},
		{hasGraphTimes, hasGraphs, "times of graphs need graphs"},
	} {
		if b.has&p.one != 0 && b.has&p.needs == 0 {
			return p.text
		}
	}
	return ""
}

func (b *Backend) readKinds(t *C.native_table) error {
	if b.has&hasShares == 0 {
		return nil
	}
	if t.share_count == 0 || t.share_count > 64 || t.share_kinds == nil {
		return fmt.Errorf("%w: its table has %d kinds of shares: expected 1 to 64", framework.ErrInvalid, uint32(t.share_count))
	}
	at := unsafe.Pointer(t.share_kinds)
	step := uint64(t.share_kinds.size) // of the structure, as the back end knows it
	if step < 16 || step > 4096 || step%8 != 0 {
		return fmt.Errorf("%w: its kinds of shares have a size of %d bytes: expected about %d", framework.ErrInvalid, step, uint64(C.sizeof_mscclpp_device_share_kind))
	}
	for i := range uint64(t.share_count) {
		k := (*C.mscclpp_device_share_kind)(unsafe.Add(at, i*step))
		if k.name == nil {
			return fmt.Errorf("%w: its kind of share %d has no name", framework.ErrInvalid, i)
		}
		kind := shareKind{name: framework.ShareKind(C.GoString(k.name))}
		kind.onDemand = step > 16 && k.on_demand != 0
		kind.places = step > 20 && k.places != 0
		if !b.mayName(kind.name) {
			return fmt.Errorf("%w: its kind of share %q: expected vmm, legacy-ipc, fabric or dma-buf, or a name that begins with %q or %q", framework.ErrInvalid, kind.name, b.typ+"-", "fd:"+b.typ)
		}
		b.kinds = append(b.kinds, kind)
	}
	return nil
}

// mayName reports whether a kind is one that transports know, or one of this maker's own.
func (b *Backend) mayName(k framework.ShareKind) bool {
	switch k {
	case framework.ShareVMM, framework.ShareLegacyIPC, framework.ShareFabric, framework.ShareDMABuf:
		return true
	}
	return len(k) <= 64 && (strings.HasPrefix(string(k), b.typ+"-") || strings.HasPrefix(string(k), "fd:"+b.typ))
}

// Capabilities: the optional groups of a table.
const (
	hasShares   = C.MSCCLPP_DEVICE_HAS_SHARES
	hasPeers    = C.MSCCLPP_DEVICE_HAS_PEERS
	hasHost     = C.MSCCLPP_DEVICE_HAS_HOST
	hasViews    = C.MSCCLPP_DEVICE_HAS_VIEWS
	hasRanges   = C.MSCCLPP_DEVICE_HAS_RANGES
	hasFlush    = C.MSCCLPP_DEVICE_HAS_FLUSH
	hasStreams  = C.MSCCLPP_DEVICE_HAS_STREAMS
	hasEvents   = C.MSCCLPP_DEVICE_HAS_EVENTS
	hasTimes    = C.MSCCLPP_DEVICE_HAS_TIMES
	hasAllEvent = C.MSCCLPP_DEVICE_HAS_ALL_EVENT
	hasGraphs   = C.MSCCLPP_DEVICE_HAS_GRAPHS
	hasWaits    = C.MSCCLPP_DEVICE_HAS_WAITS
	hasBinding  = C.MSCCLPP_DEVICE_HAS_BINDING

	hasStreamIDs = C.MSCCLPP_DEVICE_HAS_STREAM_IDS
	hasMulticast = C.MSCCLPP_DEVICE_HAS_MULTICAST
	hasPlaces    = C.MSCCLPP_DEVICE_HAS_PLACES
	hasData      = C.MSCCLPP_DEVICE_HAS_DATA
	hasParts     = C.MSCCLPP_DEVICE_HAS_PARTS
	hasLinks     = C.MSCCLPP_DEVICE_HAS_LINKS

	hasGraphTimes = C.MSCCLPP_DEVICE_HAS_GRAPH_TIMES
)

// Type is the type of its devices, as in framework.Device.
func (b *Backend) Type() string { return b.typ }

// Product is the maker's name of the back end, for people.
func (b *Backend) Product() string { return b.product }

// Count returns how many devices there are.
func (b *Backend) Count() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started {
		return b.devices, nil
	}
	if err := b.check("start", noDevice, C.native_start(b.t)); err != nil {
		return 0, err
	}
	var n C.int32_t
	if err := b.check("count", noDevice, C.native_count(b.t, &n)); err != nil {
		return 0, err
	}
	b.started, b.devices = true, max(int(n), 0)
	return b.devices, nil
}
