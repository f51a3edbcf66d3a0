package inference

import (
	"fmt"
	"sync/atomic"
)

// In reports of waits a workspace has a number, behind a mark that no collective and no plan has.
const (
	waitMark = 0xd0000000
	waitMask = 0x0fffffff
)

var waitNumber atomic.Uint32

// list has reports of waits that took too long name the operator, and the workspace end with its communicator.
func (w *Workspace) list() {
	number := w.number
	unname := w.comm.AddWaits(func(kernel, channel uint32) string {
		switch {
		case kernel != number:
			return ""
		case channel == apart:
			return "all_reduce_norm: the rank has begun a call with another type, other sizes or another norm"
		case channel == 1:
			return fmt.Sprintf("all_reduce_norm: rank %d waits for the rank's call", w.comm.Rank())
		}
		return fmt.Sprintf("all_reduce_norm: rank %d waits for rows", w.comm.Rank())
	})
	unhook := w.comm.OnClose(w.Close)
	w.unlist = func() { unname(); unhook() }
}
