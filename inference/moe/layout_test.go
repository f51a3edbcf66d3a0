package moe

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// The Go twins of moe_args.h have the sizes and offsets that a compiler gives the originals.
func TestLayoutsAgree(t *testing.T) {
	layouttest.Agree(t, layouttest.Source{Headers: []string{"moe_args.h"}, Namespace: "mscclpp::inference", Include: []string{"kernels", "../../framework/kernel/include"}},
		[]layouttest.Twin{
			{Name: "MoeState", Go: moeState{}},
			{Name: "MoeKnown", Go: moeKnown{}},
			{Name: "MoeArgs", Go: moeArgs{}},
		}, map[string]uint64{
			"kMoeWeighted << 8 | kMoeExponents":            uint64(weighted<<8 | exponents),
			"kMoeSend << 16 | kMoeReceive << 8 | kMoeCast": uint64(sendPhase<<16 | receivePhase<<8 | castRows),
			"kMoeApart - kMoeFull":                         channelApart - channelFull,
			"kMoeWrongExpert":                              channelExpert,
			"kMoeRecord":                                   recordBytes,
			"kMoeExpertsOfBlock":                           expertsOfBlock,
		})
}
