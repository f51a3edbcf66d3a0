package kernelargs

import (
	"math"
	"testing"
)

// TestPackedSignature has UnpackSignature take apart what Pack made, each field as large as it can be.
func TestPackedSignature(t *testing.T) {
	for _, s := range []Signature{
		{Sequence: 1},
		{Sequence: math.MaxUint32, Count: math.MaxUint64, Type: 255},
		{Sequence: 7, Op: 255, Count: 1 << 33, Root: math.MaxUint16},
		{Sequence: 8, Collective: 255},
		{Sequence: 9, Algorithm: 1<<24 - 1, Type: 3, Op: 2, Root: 1, Collective: 4, Count: 5},
	} {
		got, tag, ok := UnpackSignature(s.Pack())
		got.Sequence = uint64(tag)
		if !ok || got != s {
			t.Errorf("%+v is %+v after it was packed and unpacked", s, got)
		}
	}
}
