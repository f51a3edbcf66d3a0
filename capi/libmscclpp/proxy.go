package main

// #include "internal.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/proxy"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// proxied is a ring with the program's function at its end.
type proxied struct {
	ring    *ring.Ring
	service *proxy.Service
	handle  kernel.FifoHandle
	once    sync.Once

	ctx  context.Context // of calls that wait, which hold use
	end  context.CancelFunc
	use  sync.RWMutex
	gone bool // the ring is not mapped any more
}

// entered finds a proxy and keeps its ring mapped, until the caller unlocks use.
func entered(h C.uintptr_t) (*object[*proxied], error) {
	o, err := objectOf[*proxied](kindProxy, h)
	if err != nil {
		return nil, err
	}
	o.value.use.RLock()
	if o.value.gone {
		o.value.use.RUnlock()
		return nil, errDestroyed
	}
	return o, nil
}

// stopTime is how long the triggers that were pushed may take when a proxy ends.
const stopTime = 10 * time.Second

//export mscclppGoProxyCreate
func mscclppGoProxyCreate(h C.uintptr_t, slots C.uint32_t, handler C.mscclpp_proxy_fn, data unsafe.Pointer, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	if d := p.job.Device.Info().Device; d != framework.Host {
		return fail(f, fmt.Errorf("%w: proxy create: device %v: expected the host", framework.ErrUnsupported, d))
	}
	x := &proxied{}
	x.ctx, x.end = context.WithCancel(c.ctx)
	if x.ring, err = ring.New(int(slots)); err != nil {
		return fail(f, fmt.Errorf("proxy create: %w", err))
	}
	x.handle = x.ring.Handle(p.world.Control())
	x.service = proxy.New(x.ring, func(t kernel.Trigger, pos uint64) proxy.Result {
		switch result := C.call_handler(handler, data, C.uint64_t(t.Fst), C.uint64_t(t.Snd), C.uint64_t(pos)); result {
		case 0:
			return proxy.Continue
		case 1:
			return proxy.End
		default:
			return proxy.Fail(fmt.Errorf("%w: the function for triggers returned %d at position %d", framework.ErrInvalid, int(result), pos))
		}
	}, proxy.Options{})
	if err := x.service.Start(); err != nil {
		return fail(f, errors.Join(err, x.ring.Close()))
	}
	return fail(f, adopt(c, kindProxy, x, x.close, out))
}

func (x *proxied) close() (err error) {
	x.once.Do(func() { err = x.stop() })
	return err
}

func (x *proxied) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := x.service.Stop(ctx)
	select {
	case <-x.service.Done():
	default: // the function does not return: the ring stays for it
		return err
	}
	if err == nil {
		err = x.service.Wait(ctx) // that of the function
	}
	x.end()
	x.use.Lock() // those that waited have left
	defer x.use.Unlock()
	x.gone = true
	return errors.Join(err, x.ring.Close())
}

//export mscclppGoProxyHandle
func mscclppGoProxyHandle(h C.uintptr_t, out unsafe.Pointer, size *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[*proxied](kindProxy, h)
	if err != nil {
		return fail(f, err)
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&o.value.handle)), unsafe.Sizeof(o.value.handle))
	return fail(f, fill(out, size, "proxy handle", bytes))
}

//export mscclppGoProxyPush
func mscclppGoProxyPush(h C.uintptr_t, first, second C.uint64_t, position *C.uint64_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := entered(h)
	if err != nil {
		return fail(f, err)
	}
	defer o.value.use.RUnlock()
	pos, err := o.value.ring.PushContext(o.value.ctx, kernel.Trigger{Fst: uint64(first), Snd: uint64(second)})
	if err == nil && position != nil {
		*position = C.uint64_t(pos)
	}
	return fail(f, o.owner.explain(err))
}

//export mscclppGoProxyComplete
func mscclppGoProxyComplete(h C.uintptr_t, position C.uint64_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := entered(h)
	if err != nil {
		return fail(f, err)
	}
	defer o.value.use.RUnlock()
	o.value.ring.Complete(0, uint64(position))
	return C.MSCCLPP_SUCCESS
}

//export mscclppGoProxyFlush
func mscclppGoProxyFlush(h C.uintptr_t, position, timeout C.uint64_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := entered(h)
	if err != nil {
		return fail(f, err)
	}
	defer o.value.use.RUnlock()
	ctx := o.value.ctx
	if timeout > 0 && timeout < math.MaxInt64 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(timeout))
		defer cancel()
	}
	return fail(f, o.owner.explain(o.value.ring.WaitFlushed(ctx, 0, uint64(position))))
}
