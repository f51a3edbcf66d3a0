package inference

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

// The Go twins of norm_args.h have the sizes and offsets that a compiler gives the originals.
func TestLayoutsAgree(t *testing.T) {
	layouttest.Agree(t, layouttest.Source{Headers: []string{"norm_args.h"}, Namespace: "mscclpp::inference", Include: []string{"kernels", "../framework/kernel/include"}},
		[]layouttest.Twin{
			{Name: "NormState", Go: normState{}},
			{Name: "NormArgs", Go: normArgs{}},
		}, map[string]uint64{
			"sizeof(NormNotice)": noticeBytes,
			"kEarly << 20 | kQuads << 24 | kPairs << 25 | kOwnInput << 24 | kOwnOutput << 16 | kOwnResidual << 12 | kNoNorm << 8 | kLayerNorm << 4 | kTwoShot": uint64(early<<20 | quads<<24 | pairs<<25 | ownInput<<24 | ownOutput<<16 | ownResidual<<12 | noNorm<<8 | layerNorm<<4 | twoShot),
			"kMostBlocks": mostBlocks,
			"kInt8PerTensor << 16 | kInt8PerToken << 8 | kE4M3PerToken": uint64(Int8PerTensor<<16 | Int8PerToken<<8 | E4M3PerToken),
			"kApart": apart,
		})
}
