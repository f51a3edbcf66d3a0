package machine

import "github.com/mscclpp-go/mscclpp/internal/gfx/isa"

var (
	FMA     = fmaF32
	ToF16   = f32ToF16
	FromF16 = f16ToF32
)

// Executes tells whether something executes an operation.
func Executes(f *isa.Form) bool {
	o := op{Inst: isa.Inst{Form: f}}
	return o.bind() == nil
}
