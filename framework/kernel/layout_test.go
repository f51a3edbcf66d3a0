package kernel_test

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

func TestLayoutsAreThoseOfCpp(t *testing.T) {
	originals := layouttest.Read(t, "testdata/layout.json")
	twins := map[string]any{
		"WaitControl":         kernel.WaitControl{},
		"RecordRing":          kernel.RecordRing{},
		"RecordClock":         kernel.RecordClock{},
		"SemaphoreHandle":     kernel.SemaphoreHandle{},
		"MemoryChannelHandle": kernel.MemoryChannelHandle{},
		"Trigger":             kernel.Trigger{},
		"RingHeader":          kernel.RingHeader{},
		"FifoHandle":          kernel.FifoHandle{},
		"PortChannelHandle":   kernel.PortChannelHandle{},
		"SwitchChannelHandle": kernel.SwitchChannelHandle{},
		"GridBarrier":         kernel.GridBarrier{},
		"LaunchShape":         kernel.LaunchShape{},
	}
	for name, twin := range twins {
		original, ok := originals[name]
		if !ok {
			t.Errorf("%s: not in layout.json", name)
			continue
		}
		layouttest.Compare(t, name, original, twin)
	}
}

func TestLayoutFileIsCurrent(t *testing.T) {
	layouttest.Regenerate(t, "testdata/layout.cc", "testdata/layout.json", "include")
}

// A comparison that cannot fail shows nothing.
func TestCompareSeesDifferences(t *testing.T) {
	original := layouttest.Struct{Size: 16, Offsets: map[string]uintptr{"first": 0, "second_word": 8}}
	layouttest.Compare(t, "equal", original, struct{ First, SecondWord uint64 }{})
	for name, twin := range map[string]any{
		"size":    struct{ First, SecondWord, Third uint64 }{},
		"offset":  struct{ SecondWord, First uint64 }{},
		"missing": struct{ First, Other uint64 }{},
		"extra": struct {
			First            uint64
			SecondWord, More uint32
		}{},
	} {
		probe := &failures{TB: t}
		layouttest.Compare(probe, name, original, twin)
		if probe.count == 0 {
			t.Errorf("%s: the difference was not seen", name)
		}
	}
}

// failures counts what would have failed the test.
type failures struct {
	testing.TB
	count int
}

func (f *failures) Errorf(string, ...any) { f.count++ }
func (f *failures) Helper()               {}
