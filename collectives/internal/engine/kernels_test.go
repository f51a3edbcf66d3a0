package engine

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Kernels of bytes are loaded for all types at once.
func TestBytesHaveNoType(t *testing.T) {
	one := &Kernel{Kind: collective.AllGather}
	one.keep(kernel.Float64, stubKernel{})
	if k, err := one.Load(t.Context(), nil, kernel.Float64); err != nil || k == nil {
		t.Errorf("%v, %v: expected nothing to be loaded twice", k, err)
	}
	for _, kind := range []collective.Kind{collective.AllGather, collective.AllReduce, collective.SendRecv} {
		a := &Kernel{Kind: kind}
		a.keep(kernel.Uint8, stubKernel{})
		for i, k := range a.loaded {
			if has, want := k != nil, !kind.Reduces() || kernel.DataType(i) == kernel.Uint8; has != want {
				t.Errorf("%v of %v: loaded %v, expected %v", kind, kernel.DataType(i), has, want)
			}
		}
	}
}

type stubKernel struct{ device.Kernel }
