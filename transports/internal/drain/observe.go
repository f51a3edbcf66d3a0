package drain

// #cgo CFLAGS: -I${SRCDIR}/../../../framework/kernel/include
// #include "drain.h"
import "C"

import (
	"runtime/cgo"

	"github.com/mscclpp-go/mscclpp/framework/observe"
)

//export mscclpp_drain_observe
func mscclpp_drain_observe(observer C.uintptr_t, d *C.mscclpp_drain) {
	next, events, state := cgo.Handle(observer).Value().(*observe.Loop).Ring()
	if d.records_none = 1; state != nil {
		d.records_none = 0
		d.records.on = d.observed
		d.records.next, d.records.events, d.records_state = (*C.uint64_t)(next), (*C.mscclpp_observe_event)(events), (*C.uint32_t)(state)
	}
}
