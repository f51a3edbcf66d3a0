package moe

import (
	"fmt"
	"sync/atomic"
)

// In reports of waits a buffer has a number, behind a mark that no collective, plan or workspace has.
const (
	waitMark = 0xc0000000
	waitMask = 0x0fffffff
)

var waitNumber atomic.Uint32

// otherCall is in what a rank's call may differ.
const otherCall = "another format or other sizes"

// list has reports of waits that took too long name the operator, and the buffer end with its communicator.
func (b *Buffer) list(end func() error) {
	number := b.number
	unname := b.comm.AddWaits(func(kernel, channel uint32) string {
		if kernel != number {
			return ""
		}
		return b.waitOf(channel)
	})
	unhook := b.comm.OnClose(end)
	b.unlist = func() { unname(); unhook() }
}

func (b *Buffer) waitOf(channel uint32) string {
	const op = "dispatch or combine"
	me := b.comm.Rank()
	switch channel {
	case channelApart:
		return op + ": the rank has begun a call with " + otherCall
	case channelExpert:
		return fmt.Sprintf("dispatch: a token of rank %d has an expert that there is not: expected -1 to %d", me, b.options.Experts-1)
	case channelNotices:
		return fmt.Sprintf("%s: rank %d waits for the rank's call", op, me)
	case channelCounts:
		return fmt.Sprintf("dispatch: rank %d waits for the number of the rank's rows", me)
	case channelAcks:
		return fmt.Sprintf("%s: rank %d waits until the rank has received the call before the last", op, me)
	case channelWeights:
		return fmt.Sprintf("combine: rank %d waits for weights", me)
	}
	if expert := channel &^ channelFull; channel >= channelFull && expert < mostExperts {
		return fmt.Sprintf("dispatch: expert %d, of rank %d, was sent more rows than it has room for: expected more slots", expert, me)
	}
	return fmt.Sprintf("%s: rank %d waits for rows", op, me)
}
