package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
)

// registration is local memory that the adapter knows.
type registration struct {
	t      *Transport
	memory *memfd.Memory // nil for memory of a device, and for an address of the rank
	region *region
	mapped bool // this process can touch the region

	mu    sync.Mutex
	gone  bool
	inbox *memfd.Memory // counts for a forwarder, where the plugin cannot raise counters
}

// close runs when no proxy has the memory any more; the receiver looks ids up, and finds
// this one no longer.
func (r *registration) close() {
	r.region.close()
	r.mu.Lock()
	for _, m := range []*memfd.Memory{r.memory, r.inbox} {
		if m != nil {
			_ = m.Close() // of what this package mapped
		}
	}
	r.memory, r.inbox, r.gone = nil, nil, true
	r.mu.Unlock()
	r.t.release()
}

// raise adds to the counter at an offset, or to the word of the inbox that stands for it.
// False: there is no way to.
func (r *registration) raise(offset, n uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	base := uintptr(r.region.addr)
	if r.inbox != nil {
		base = uintptr(r.inbox.Addr())
	}
	if r.gone || r.inbox == nil && !r.mapped || offset > r.region.bytes || r.region.bytes-offset < 8 || (uint64(base)+offset)%8 != 0 {
		return false
	}
	word := base + uintptr(offset)
	atomic.AddUint64(*(**uint64)(unsafe.Pointer(&word)), n) // a reader that sees the sum sees all earlier writes
	return true
}

// Register takes memory behind a sealed memfd, or behind a dma-buf. In the process of the
// rank it takes memory of the host by its address, too; what is there has to stay until the
// registration is closed, behind which neither the adapter nor a peer touches it.
func (t *Transport) Register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	r, err := t.register(ctx, seg)
	if err != nil {
		return r, t.failure("register", err)
	}
	return r, nil
}

func (t *Transport) register(ctx context.Context, seg framework.Segment) (framework.Registration, error) {
	var none framework.Registration
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if seg.Bytes == 0 || seg.Offset+seg.Bytes < seg.Offset {
		return none, fmt.Errorf("%w: %d bytes at offset %d", framework.ErrInvalid, seg.Bytes, seg.Offset)
	}
	share, err := t.usable(seg)
	direct := err != nil && byAddress(seg)
	if err != nil && !direct {
		return none, err
	}
	// The check of the range comes before the device, which may be missing.
	if share.Kind == framework.ShareMemFD {
		if err := memfd.Check(share.FD, seg.Offset, seg.Bytes); err != nil {
			return none, err
		}
	}
	d, err := t.acquire(nil)
	if err != nil {
		return none, err
	}
	r := &registration{t: t, mapped: direct || share.Kind == framework.ShareMemFD}
	// Never with relaxed ordering: a signal is ordered behind data by the bus alone, and
	// which memory holds counters is known only when they are bound.
	access := accessLocal | accessWrite | accessRead
	if t.setup.Mode == Atomic {
		access |= accessAtomic
	}
	switch {
	case direct:
		r.region, err = d.registerAddress(seg, access)
	case share.Kind == framework.ShareMemFD:
		if r.memory, err = memfd.Open(share.FD, seg.Offset, seg.Bytes); err == nil {
			r.region, err = d.register(r.memory.Addr(), seg.Bytes, access)
		}
	default:
		r.region, err = d.registerFD(share, seg, access)
	}
	if err != nil {
		if r.memory != nil {
			_ = r.memory.Close()
		}
		t.release()
		return none, err
	}
	id := t.objects.Keep(r)
	k := key{mode: t.setup.Mode, id: id, addr: r.region.addr, bytes: seg.Bytes, rkey: r.region.rkey}
	return framework.Registration{ID: id, Key: framework.Parcel{Data: k.append(nil)}}, nil
}

// byAddress reports whether memory of the host has nothing but an address of this process.
func byAddress(seg framework.Segment) bool {
	return seg.Addr != 0 && len(seg.Shares) == 0 && (seg.Device.Type == "" || seg.Device == framework.Host)
}

func (d *adapter) registerAddress(seg framework.Segment, access int) (*region, error) {
	if seg.Addr+seg.Bytes < seg.Addr {
		return nil, fmt.Errorf("%w: %d bytes at address %#x", framework.ErrInvalid, seg.Bytes, seg.Addr)
	}
	addr := uintptr(seg.Addr)
	r, err := d.register(*(*unsafe.Pointer)(unsafe.Pointer(&addr)), seg.Bytes, access)
	if errors.Is(err, syscall.EFAULT) {
		err = fmt.Errorf("%w: %d bytes at address %#x: expected memory that this process may write: %w", framework.ErrInvalid, seg.Bytes, seg.Addr, syscall.EFAULT)
	}
	return r, err
}

func (d *adapter) registerFD(s framework.Share, seg framework.Segment, access int) (r *region, err error) {
	raw, err := s.FD.SyscallConn()
	if err == nil {
		cerr := raw.Control(func(fd uintptr) { r, err = d.registerDMABuf(fd, seg.Offset, seg.Bytes, access) })
		if cerr != nil {
			err = cerr
		}
	}
	if err != nil && framework.Class(err) == nil {
		err = fmt.Errorf("%w: dma-buf: %w", framework.ErrInvalid, err)
	}
	return r, err
}

// usable picks the share by which the adapter can reach memory.
func (t *Transport) usable(seg framework.Segment) (framework.Share, error) {
	kind := framework.ShareMemFD
	if seg.Device.Type != "" && seg.Device != framework.Host { // any device may export its memory for adapters
		kind = framework.ShareDMABuf
		if i := slices.IndexFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == framework.ShareMemFD }); i >= 0 {
			kind = framework.ShareMemFD // host memory that a device has registered
		}
	}
	i := slices.IndexFunc(seg.Shares, func(s framework.Share) bool { return s.Kind == kind })
	if kind == framework.ShareDMABuf && !t.config.GPUDirect {
		return framework.Share{}, fmt.Errorf("%w: memory of %s: the option gpu_direct is off; expected memory of the host", framework.ErrUnsupported, seg.Device)
	}
	if i < 0 {
		advice := "a transport that is embedded takes other memory by its address"
		if kind == framework.ShareDMABuf {
			advice = "other memory has to be staged through memory of the host"
		}
		return framework.Share{}, fmt.Errorf("%w: memory of %s without a share of kind %s: expected memory from Alloc; %s", framework.ErrUnsupported, seg.Device, kind, advice)
	}
	if seg.Shares[i].FD == nil {
		return framework.Share{}, fmt.Errorf("%w: share of kind %s without a descriptor", framework.ErrInvalid, kind)
	}
	return seg.Shares[i], nil
}

// openInbox returns the inbox of a registration, which is as large as it.
func (r *registration) openInbox() (framework.Share, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inbox == nil {
		m, err := memfd.New("mscclpp-inbox", r.region.bytes, memfd.Options{})
		if err != nil {
			return framework.Share{}, err
		}
		r.inbox = m
	}
	return framework.Share{Kind: framework.ShareMemFD, FD: r.inbox.File()}.Dup()
}
