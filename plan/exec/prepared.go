package exec

import (
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// prepared is the arena and the kernel of a call, with the arguments that they were found for: programs repeat their calls.
type prepared struct {
	arena  *arena // nil: nothing
	kernel device.Kernel
	of     arguments
	again  bool // a call of the same arguments is the same…

	exchanges uint64 // …as long as no other memory is exchanged
}

// arguments are those of a call.
type arguments struct {
	input, output           uintptr
	inputBytes, outputBytes uint64
	dtype                   kernel.DataType
	op                      kernel.Op
	packet                  Packet
	keepInput               bool
}

func argumentsOf(c *Call) arguments {
	return arguments{uintptr(c.Input), uintptr(c.Output), c.InputBytes, c.OutputBytes, c.Type, c.Op, c.Packet, c.KeepInput}
}

// repeats reports whether a call is prepared already: it is the last one again. Everything that it needs was used last, and so is not what is given up next.
func (e *Executor) repeats(c *Call) bool {
	return e.prepared.again && e.prepared.of == argumentsOf(c) && (e.place.windows == 0 || e.prepared.exchanges == e.comm.Exchanges()) && e.comm.Check() == nil
}
