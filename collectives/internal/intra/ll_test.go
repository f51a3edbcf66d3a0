package intra

import (
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// launches notes what it is to do.
type launches []kernelargs.LLArgs

func (l *launches) Launch(_ device.Launch, args unsafe.Pointer, bytes uintptr) error {
	if bytes != unsafe.Sizeof(kernelargs.LLArgs{}) {
		panic(bytes)
	}
	*l = append(*l, *(*kernelargs.LLArgs)(args))
	return nil
}

// Data that ranks have in common may have more bytes than a launch counts: then there are several,
// one behind the other.
func TestMoreThanALaunchCounts(t *testing.T) {
	p := choose.TraitsOf("stream_ll128", collective.AllReduce).Protocol
	for _, typ := range []kernel.DataType{kernel.Uint8, kernel.Float16, kernel.Float64} {
		element := uint64(typ.Size())
		for _, count := range []uint64{0, 1, choose.LaunchPart / element, choose.LaunchPart/element + 1, 32 << 30 / element} {
			call, done := kernelargs.Args{Count: count, Element: uint32(element), Input: 1 << 40, Output: 1 << 44}, launches(nil)
			x := llKernels{call: &call, residents: &residents{}}
			if err := x.launch(&done, p, device.Launch{Grid: 128, Block: 512}); err != nil {
				t.Fatal(err)
			}
			sum := uint64(0)
			for _, a := range done {
				if at := uintptr(sum * element); a.Input != 1<<40+at || a.Output != 1<<44+at || a.Count*element > choose.LaunchPart || at%16 != 0 {
					t.Errorf("%d of %v: a launch of %d from %#x to %#x, %d behind the beginning", count, typ, a.Count, a.Input, a.Output, at)
				}
				sum += a.Count
			}
			if want := max(1, int((count*element+choose.LaunchPart-1)/choose.LaunchPart)); sum != count || len(done) != want {
				t.Errorf("%d of %v: %d launches of %d in all, expected %d", count, typ, len(done), sum, want)
			}
		}
	}
}
