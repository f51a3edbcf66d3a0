package ring

import (
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// The header for C says the same as Go, in every number, and has no number that is not
// compared here.
func TestHeaderForC(t *testing.T) {
	var h kernel.RingHeader
	want := map[string]uint64{
		"ring_tail":        uint64(unsafe.Offsetof(h.Tail)),
		"ring_error":       uint64(unsafe.Offsetof(h.Error)),
		"ring_parked":      uint64(unsafe.Offsetof(h.Parked)),
		"ring_head":        uint64(unsafe.Offsetof(h.Head)),
		"ring_flush":       uint64(flushOffset(0)),
		"ring_triggers":    kernel.RingTriggers,
		"ring_flush_words": kernel.RingFlushWords,
		"ring_trigger":     uint64(unsafe.Sizeof(kernel.Trigger{})),
		"ring_invalid":     uint64(Code(framework.ErrInvalid)),
		"do_put":           kernel.TriggerData,
		"do_signal":        kernel.TriggerSignal,
		"do_flush":         kernel.TriggerFlush,
	}
	found := regexp.MustCompile(`(?m)^  mscclpp_(\w+) = (\d+),`).FindAllStringSubmatch(headerForC, -1)
	if len(found) != len(want) {
		t.Errorf("%d numbers, expected %d", len(found), len(want))
	}
	for _, m := range found {
		got, err := strconv.ParseUint(m[2], 10, 64)
		if expected, known := want[m[1]]; err != nil || !known || got != expected {
			t.Errorf("%s is %s, expected %d (known: %v, %v)", m[1], m[2], expected, known, err)
		}
	}
}
