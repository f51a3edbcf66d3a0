package exec

import (
	"encoding/binary"
	"fmt"
)

// In reports of waits a plan has a number, behind a mark that no collective has. It is made of the text of the plan.
const (
	waitMark = 0xe0000000
	waitMask = 0x0fffffff
)

// list has reports of waits that took too long name the plan, the block and the operation, and the executor end
// with its communicator.
func (e *Executor) list() {
	e.number = waitMark | binary.LittleEndian.Uint32(e.sum[:])&waitMask
	p, rank, number := e.plan, e.comm.Rank(), e.number
	unname := e.comm.AddWaits(func(kernel, channel uint32) string {
		if kernel != number {
			return ""
		}
		b, i := int(channel>>20), int(channel&0xfffff)
		name := ""
		if ops := p.GPUs[rank].Blocks; b < len(ops) && i < len(ops[b].Ops) {
			name = " (" + string(ops[b].Ops[i].Name) + ")"
		}
		return fmt.Sprintf("plan %s: rank %d, block %d, operation %d%s", p.Name, rank, b, i, name)
	})
	unhook := e.comm.OnClose(e.Close)
	e.unlist = func() { unname(); unhook() }
}
