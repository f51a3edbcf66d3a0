package main

// #include "internal.h"
import "C"

import (
	"context"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

//export mscclppGoChannel
func mscclppGoChannel(h C.uintptr_t, kind C.int, peer C.int32_t, source, target C.uintptr_t, out *C.uintptr_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	c, p, err := ready(handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	from, err := within[*comm.Memory](c, kindMemory, source)
	if err != nil {
		return fail(f, err)
	}
	to, err := within[*comm.Memory](c, kindMemory, target)
	if err != nil {
		return fail(f, err)
	}
	ch, err := c.channel(p, kind, int(peer), from, to)
	if err != nil {
		return fail(f, c.explain(err))
	}
	return fail(f, adopt(c, kindChannel, ch, ch.Close, out))
}

// channel makes a channel of a kind.
func (c *communicator) channel(p *parts, kind C.int, peer int, from, to *comm.Memory) (framework.Channel, error) {
	ctx, cancel := c.bounded()
	defer cancel()
	if kind != C.CHANNEL_SWITCH && (peer < 0 || peer >= p.world.Size() || peer == p.world.Rank()) {
		return nil, fmt.Errorf("%w: channel to rank %d of %d: expected another rank", framework.ErrInvalid, peer, p.world.Size())
	}
	var ch framework.Channel
	var err error
	switch kind {
	case C.CHANNEL_MEMORY:
		ch, err = p.world.MemoryChannel(ctx, peer, to)
	case C.CHANNEL_PORT:
		ch, err = p.world.PortChannel(ctx, peer, from, to)
	default:
		ch, err = p.world.SwitchChannel(ctx, to)
	}
	if err != nil {
		return nil, err // and no nil pointer in an interface
	}
	return ch, nil
}

//export mscclppGoChannelHandle
func mscclppGoChannelHandle(h C.uintptr_t, out unsafe.Pointer, size *C.size_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[framework.Channel](kindChannel, h)
	if err != nil {
		return fail(f, err)
	}
	b, err := o.value.AppendBinary(nil)
	if err != nil {
		return fail(f, err)
	}
	return fail(f, fill(out, size, "channel handle", b))
}

//export mscclppGoPort
func mscclppGoPort(h C.uintptr_t, request C.int, to, from, bytes C.size_t, timeout C.uint64_t, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	o, err := objectOf[framework.Channel](kindChannel, h)
	if err != nil {
		return fail(f, err)
	}
	ch, ok := o.value.(*comm.PortChannel)
	if !ok {
		return fail(f, fmt.Errorf("%w: a channel of kind %v: expected a port channel", framework.ErrInvalid, o.value.Kind()))
	}
	switch request {
	case C.PORT_PUT:
		return fail(f, ch.Put(uint64(to), uint64(from), uint64(bytes)))
	case C.PORT_PUT_SIGNAL:
		return fail(f, ch.PutWithSignal(uint64(to), uint64(from), uint64(bytes)))
	case C.PORT_SIGNAL:
		return fail(f, ch.Signal())
	}
	ctx := o.owner.ctx
	if timeout > 0 && timeout < math.MaxInt64 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(timeout))
		defer cancel()
	}
	if request == C.PORT_FLUSH {
		return fail(f, o.owner.explain(ch.Flush(ctx)))
	}
	return fail(f, o.owner.explain(ch.Wait(ctx)))
}
