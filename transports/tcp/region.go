package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// region is registered memory, mapped. It is unmapped when it was closed and nobody
// reads into it or sends from it any more.
type region struct {
	mem   *memfd.Memory
	token [16]byte // a peer that knows it was given the key
	*span
}

// span is what C has to know of a region. It has no pointers of Go.
type span struct {
	users atomic.Int64 // 1 for the registration itself
	base  uintptr
	bytes uint64
}

// close ends the registration.
func (r *region) close(*Transport) { r.release() }

func (r *region) retain() bool {
	for {
		n := r.users.Load()
		if n == 0 {
			return false
		}
		if r.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (r *region) release() {
	if r.users.Add(-1) == 0 {
		_ = r.mem.Close()
	}
}

// slice is a range of the region, or an error if there is no such range.
func (r *region) slice(offset, bytes uint64) ([]byte, error) {
	if size := r.mem.Len(); offset > size || bytes > size-offset {
		return nil, fmt.Errorf("%w: %d bytes at %d of memory of %d", framework.ErrInvalid, bytes, offset, size)
	}
	return r.mem.Bytes()[offset : offset+bytes], nil
}

// raise adds one to a counter. The addition is a full barrier: a thread that sees it sees the data
// that was read before.
func (r *region) raise(offset uint64) error {
	word, err := r.slice(offset, 8)
	if err != nil {
		return err
	}
	p := unsafe.Pointer(unsafe.SliceData(word))
	if uintptr(p)%8 != 0 {
		return fmt.Errorf("%w: semaphore at %d is not aligned: expected a multiple of 8", framework.ErrInvalid, offset)
	}
	atomic.AddUint64((*uint64)(p), 1)
	return nil
}

// Register takes memory that has a sealed memfd: that of the host, and that of the
// host which a device has registered.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := t.register(ctx, seg)
	if err != nil {
		return r, failure("register", err)
	}
	return r, nil
}

func (t *Transport) register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	var none framework.Registration
	if err := ctx.Err(); err != nil {
		return none, err
	}
	i := slices.IndexFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareMemFD })
	if i < 0 {
		if !onHost(seg.Device) {
			t.mu.Lock()
			t.lacking[seg.Device] = true
			t.mu.Unlock()
			return none, fmt.Errorf("%w: memory of %s without a share of kind %s: sockets reach memory of the host alone; set gpu_memory to host, which lets the GPU work there",
				framework.ErrUnsupported, seg.Device, framework.ShareMemFD)
		}
		return none, fmt.Errorf("%w: memory without a share of kind %s: expected memory from Alloc", framework.ErrUnsupported, framework.ShareMemFD)
	}
	mem, err := memfd.Open(seg.Shares[i].FD, seg.Offset, seg.Bytes)
	if err != nil {
		return none, err
	}
	r := &region{mem: mem, span: &span{base: uintptr(mem.Addr()), bytes: mem.Len()}}
	r.users.Store(1)
	_, _ = rand.Read(r.token[:])
	id := t.made.Keep(r)
	k := key{owner: t.owner, id: uint64(id), token: r.token, bytes: seg.Bytes, align: byte(seg.Offset % 8)}
	return framework.Registration{ID: id, Key: framework.Parcel{Data: k.append(nil)}}, nil
}

func onHost(d framework.Device) bool { return d.Type == "" || d == framework.Host }
