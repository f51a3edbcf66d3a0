package main

// #include "internal.h"
import "C"

import (
	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/internal/fastpath"
)

func init() {
	for call, kind := range map[C.int]collectives.Collective{
		C.CALL_ALL_REDUCE: collectives.AllReduce, C.CALL_REDUCE: collectives.Reduce, C.CALL_REDUCE_SCATTER: collectives.ReduceScatter,
		C.CALL_ALL_GATHER: collectives.AllGather, C.CALL_BROADCAST: collectives.Broadcast, C.CALL_ALL_TO_ALL: collectives.AllToAll,
	} {
		C.fast_kind(call, C.uint32_t(kind))
	}
	C.fast_function(C.uintptr_t(fastpath.Function()))
	fastpath.Enable()
}

// bind has C find what calls of a communicator have become, once it was joined.
func bind(h handles.Handle, c *communicator) {
	if p := c.parts.Load(); p != nil {
		if t := fastpath.Of(p.world); t != nil {
			C.fast_bind(C.uintptr_t(h), C.uintptr_t(t.Bind(uint64(h))))
		}
	}
}

// unbind ends that, before the handle ends.
func unbind(h handles.Handle) { C.fast_unbind(C.uintptr_t(h)) }
