package bench

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func TestOnesAreOnes(t *testing.T) {
	for ty := range kernel.DataType(kernel.DataTypes) {
		if n := len(onePattern[ty]); n != ty.Size() {
			t.Errorf("%s: the pattern has %d bytes, an element %d", ty, n, ty.Size())
		}
	}
}

func TestHeapIsAligned(t *testing.T) {
	for _, n := range []int64{1, 7, 4096, 1 << 20} {
		b := Heap(n).View
		if int64(len(b)) != n || uintptr(unsafe.Pointer(&b[0]))%page != 0 {
			t.Errorf("%d bytes: %d at %p", n, len(b), &b[0])
		}
	}
}

// Memory that the system refuses is an error and not the end of the process.
func TestHeapThatIsRefused(t *testing.T) {
	if err := HeapHas(1 << 20); err != nil {
		t.Error(err)
	}
	if err := HeapHas(1 << 60); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "1152921504606846976 bytes") {
		t.Errorf("%v, expected ErrUnavailable that says how much", err)
	}
}
