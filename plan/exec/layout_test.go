package exec

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// The Go twins of plan_args.h have the sizes and offsets that a compiler gives the originals.
func TestLayoutsAgree(t *testing.T) {
	layouttest.Agree(t, layouttest.Source{Headers: []string{"plan_args.h"}, Namespace: "mscclpp::plans", Include: []string{"../kernels", "../../framework/kernel/include"}},
		[]layouttest.Twin{
			{Name: "Op", Go: op{}},
			{Name: "Operand", Go: operand{}},
			{Name: "Slot", Go: slot{}},
			{Name: "Window", Go: window{}},
			{Name: "Block", Go: block{}},
			{Name: "State", Go: state{}},
			{Name: "PlanArgs", Go: args{}},
		}, map[string]uint64{
			"sizeof(Cursor)":  cursorBytes,
			"sizeof(Meeting)": meetingBytes,
			"sizeof(Notice)":  noticeBytes,
			"sizeof(State)":   stateBytes,
			"kRoomOps | kRoomOperands << 8 | kRoomIDs << 16 | uint64_t(kRoomSlots) << 24": roomOps | roomOperands<<8 | roomIDs<<16 | 3*roomRanks<<24,
			"kAwait << 8 | kPut": uint64(opAwait)<<8 | uint64(opPut),
			"kOverPort | kRelaxed << 4 | kThenSignal << 8 | kOfPackets << 12 | kInPipeline << 16 | kMet << 20 | uint64_t(kTotal) << 24": uint64(overPort) | uint64(relaxed)<<4 | uint64(thenSignal)<<8 | uint64(ofPackets)<<12 | uint64(inPipeline)<<16 | uint64(met)<<20 | uint64(total)<<24,
			"kLoadsWindow | kStoresWindow << 4 | kAliased << 8":                                                                         uint64(loadsWindow) | uint64(storesWindow)<<4 | uint64(aliased)<<8,
		})
}
