// Package nccl makes the installed NCCL the peer of a comparison: it opens
// libnccl.so.2 at run time and performs the calls of package bench with it, on the
// buffers and the stream that are measured.
package nccl

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// EnvLibrary names the library to open instead of the system's libnccl.so.2.
const EnvLibrary = "MSCCLPP_NCCL_LIBRARY"

// joinTimeout bounds NCCL's own rendezvous, which takes seconds on a large host.
const joinTimeout = 60 * time.Second

// Library is an NCCL that was opened.
type Library struct{ c *C.nccl_library }

// Open opens the system's NCCL. ErrUnavailable: there is none.
func Open() (*Library, error) {
	path := os.Getenv(EnvLibrary)
	if path == "" {
		path = "libnccl.so.2"
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message *C.char
	l := C.nccl_open(name, &message)
	if l == nil {
		defer C.free(unsafe.Pointer(message))
		return nil, fmt.Errorf("%w: NCCL: %s (%s names another file)", framework.ErrUnavailable, C.GoString(message), EnvLibrary)
	}
	return &Library{l}, nil
}

// Version returns "2.28.3".
func (l *Library) Version() string {
	var v C.int
	C.nccl_version(l.c, &v)
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// Device is the part that NCCL needs of the device that it works on: a thread for which the
// device is the current one.
type Device interface {
	// Bound runs f on a thread for which the device is the current one.
	Bound(f func() error) error
}

// Peer is one rank of an NCCL communicator. It implements bench.Peer.
type Peer struct {
	lib     *Library
	dev     Device
	comm    unsafe.Pointer
	rank    int
	ranks   int
	stream  device.Stream
	args    *C.nccl_call_args // C memory: a call passes no Go pointer
	windows []unsafe.Pointer
	scaled  map[scaling]C.int
}

type scaling struct {
	t     kernel.DataType
	scale float64
}

// Join makes a communicator of the ranks of g. It is collective.
func Join(ctx context.Context, l *Library, g bench.Group, dev Device, stream device.Stream) (*Peer, error) {
	var id C.nccl_id
	var mine []byte
	p := &Peer{lib: l, dev: dev, rank: g.Rank(), ranks: g.Size(), stream: stream, scaled: make(map[scaling]C.int)}
	if p.rank == 0 {
		if err := p.result("get a unique id", C.nccl_unique_id(l.c, &id)); err != nil {
			return nil, err
		}
		mine = C.GoBytes(unsafe.Pointer(&id), C.int(unsafe.Sizeof(id)))
	}
	all, err := g.AllGather(ctx, mine)
	if err != nil {
		return nil, fmt.Errorf("nccl: exchange of the unique id: %w", err)
	}
	if len(all[0]) != int(unsafe.Sizeof(id)) {
		return nil, fmt.Errorf("%w: nccl: rank 0 sent a unique id of %d bytes, expected %d", framework.ErrPeer, len(all[0]), unsafe.Sizeof(id))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&id)), unsafe.Sizeof(id)), all[0])
	joined := make(chan error, 1)
	comm := (*unsafe.Pointer)(C.calloc(1, C.size_t(unsafe.Sizeof(p.comm)))) // NCCL may still write after the bound
	go func() {
		joined <- dev.Bound(func() error {
			return p.result("join "+strconv.Itoa(p.ranks)+" ranks", C.nccl_join(l.c, comm, C.int(p.ranks), &id, C.int(p.rank)))
		})
	}()
	select {
	case err = <-joined:
	case <-time.After(joinTimeout):
		err = fmt.Errorf("%w: nccl: its rendezvous of %d ranks took more than %v", framework.ErrPeer, p.ranks, joinTimeout)
	}
	if err != nil {
		return nil, err
	}
	p.comm = *comm
	C.free(unsafe.Pointer(comm))
	p.args = (*C.nccl_call_args)(C.calloc(1, C.size_t(unsafe.Sizeof(*p.args))))
	return p, nil
}

// Name returns the name and the version.
func (p *Peer) Name() string { return "nccl " + p.lib.Version() }

// Prepare makes buffers symmetric windows: NCCL's counterpart of registered ones.
// Collective. ErrUnsupported: this NCCL or this memory does not permit it.
func (p *Peer) Prepare(buffers ...bench.Memory) error {
	for _, m := range buffers {
		if err := p.register(m.Addr, len(m.View)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Peer) register(buffer unsafe.Pointer, bytes int) error {
	var window unsafe.Pointer
	err := p.dev.Bound(func() error {
		return p.result("register a symmetric window", C.nccl_window(p.lib.c, p.comm, buffer, C.size_t(bytes), &window))
	})
	if err != nil {
		return fmt.Errorf("%w: %w", framework.ErrUnsupported, err)
	}
	if window != nil { // older drivers answer success and none
		p.windows = append(p.windows, window)
	}
	return nil
}

// Release closes the windows. Memory of the next collective that is measured may have
// the same addresses, and NCCL identifies windows by address.
func (p *Peer) Release() error {
	return p.dev.Bound(func() error { p.closeWindows(); return nil })
}

func (p *Peer) closeWindows() {
	for _, w := range p.windows {
		C.nccl_window_close(p.lib.c, p.comm, w)
	}
	p.windows = nil
}

// Do enqueues the call on the stream, n times. The loop is in C: the way there and the
// device's binding cost tenths of a microsecond, which programs of C do not pay.
func (p *Peer) Do(c *bench.Call, n int) error {
	if err := p.fill(c); err != nil {
		return err
	}
	return p.dev.Bound(func() error {
		return p.result(c.Collective.String(), C.nccl_calls(p.lib.c, p.comm, p.args, C.int(n)))
	})
}

var kinds = map[bench.Collective]C.int{
	bench.AllReduce: C.NCCL_ALL_REDUCE, bench.AllGather: C.NCCL_ALL_GATHER, bench.ReduceScatter: C.NCCL_REDUCE_SCATTER,
	bench.Broadcast: C.NCCL_BROADCAST, bench.Reduce: C.NCCL_REDUCE, bench.AllToAll: C.NCCL_ALL_TO_ALL,
	bench.Gather: C.NCCL_GATHER, bench.Scatter: C.NCCL_SCATTER, bench.SendRecv: C.NCCL_SHIFT,
}

// types are NCCL's numbers of the element types.
var types = map[kernel.DataType]C.int{
	kernel.Int8: 0, kernel.Uint8: 1, kernel.Int32: 2, kernel.Uint32: 3, kernel.Int64: 4, kernel.Uint64: 5,
	kernel.Float16: 6, kernel.Float32: 7, kernel.Float64: 8, kernel.BFloat16: 9, kernel.Float8E4M3: 10, kernel.Float8E5M2: 11,
}

var ops = map[kernel.Op]C.int{kernel.Sum: 0, kernel.Prod: 1, kernel.Max: 2, kernel.Min: 3, kernel.Avg: 4}

// Supports reports whether NCCL has the call.
func (p *Peer) Supports(c *bench.Call) bool {
	_, kind := kinds[c.Collective]
	_, typed := types[c.Type]
	if !kind || !typed || c.Collective == bench.AllToAll && c.InPlace { // the last is no call of NCCL's
		return false
	}
	if _, named := ops[c.Op]; named || !c.Collective.Reduces() {
		return true
	}
	_, err := scalar(c.Type, c.Scale)
	return err == nil
}

func (p *Peer) fill(c *bench.Call) error {
	if !p.Supports(c) {
		return fmt.Errorf("%w: nccl has no %v of %v with %v, in place %v", framework.ErrUnsupported, c.Collective, c.Type, c.Op, c.InPlace)
	}
	op, err := p.op(c)
	if err != nil {
		return err
	}
	*p.args = C.nccl_call_args{
		kind: kinds[c.Collective], _type: types[c.Type], op: op, root: C.int(c.Root), rank: C.int(p.rank), ranks: C.int(p.ranks),
		in: c.In, out: c.Out, count: C.size_t(c.Count), element: C.size_t(c.Type.Size()), stream: p.handle(),
	}
	return nil
}

// handle is the stream as NCCL takes it: an address that is not Go's.
func (p *Peer) handle() unsafe.Pointer {
	s := uintptr(p.stream)
	return *(*unsafe.Pointer)(unsafe.Pointer(&s))
}

// op returns NCCL's number of the reduction. A scaled sum has one for each factor,
// which NCCL wants in the type of the elements.
func (p *Peer) op(c *bench.Call) (C.int, error) {
	if !c.Collective.Reduces() {
		return 0, nil
	}
	if n, ok := ops[c.Op]; ok {
		return n, nil
	}
	key := scaling{c.Type, c.Scale}
	if n, ok := p.scaled[key]; ok {
		return n, nil
	}
	factor, err := scalar(c.Type, c.Scale)
	if err != nil {
		return 0, err
	}
	var n C.int
	err = p.dev.Bound(func() error {
		return p.result("create a scaled sum", C.nccl_premulsum(p.lib.c, p.comm, unsafe.Pointer(&factor), types[c.Type], &n))
	})
	if err == nil {
		p.scaled[key] = n
	}
	return n, err
}

// scalar returns the bytes of a factor in an element type.
func scalar(t kernel.DataType, scale float64) (uint64, error) {
	switch t {
	case kernel.Float32:
		return uint64(math.Float32bits(float32(scale))), nil
	case kernel.Float64:
		return math.Float64bits(scale), nil
	case kernel.Int8, kernel.Uint8, kernel.Int32, kernel.Uint32, kernel.Int64, kernel.Uint64:
		return uint64(int64(scale)), nil
	}
	return 0, fmt.Errorf("%w: nccl: a scaled sum of %v: expected f32, f64 or an integer type", framework.ErrUnsupported, t)
}

func (p *Peer) result(what string, code C.int) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("nccl: %s: %s: %s", what, C.GoString(C.nccl_error(p.lib.c, code)), C.GoString(C.nccl_last_error(p.lib.c, p.comm)))
}

// Close leaves the communicator. All that was enqueued must have ended.
func (p *Peer) Close() error {
	err := p.dev.Bound(func() error {
		for _, n := range p.scaled {
			C.nccl_op_close(p.lib.c, p.comm, n)
		}
		p.closeWindows()
		return p.result("leave", C.nccl_leave(p.lib.c, p.comm))
	})
	C.free(unsafe.Pointer(p.args))
	p.comm, p.args = nil, nil
	return err
}
