package observe

import (
	"regexp"
	"strconv"
	"testing"
	"unsafe"
)

// The header for C says the same as Go, in every number.
func TestHeaderForC(t *testing.T) {
	want := map[string]uint64{
		"records": RingRecords, "record": uint64(unsafe.Sizeof(Record{})), "ended": uint64(ringEnded), "trigger": uint64(Trigger), "posted": uint64(Posted),
		"completed": uint64(Completed), "put": uint64(Put), "get": uint64(Get), "signal": uint64(Signal), "wait": uint64(Wait),
	}
	found := regexp.MustCompile(`(?m)^  mscclpp_observe_(\w+) = (\d+),`).FindAllStringSubmatch(headerForC, -1)
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
