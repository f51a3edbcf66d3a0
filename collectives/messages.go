package collectives

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// GroupStart begins a group. The messages of all calls until the matching GroupEnd are performed together, in any
// order, so that two ranks that both send before they receive do not deadlock. The buffer of a receive in a group must
// not overlap another one that the group receives into or sends. Groups nest; only the outermost counts. Collectives
// that are not made of messages are performed at once, also within a group. A Comm has one group at a time, whichever
// goroutine started it.
func (c *Comm) GroupStart() {
	c.progress.turn.Lock()
	defer c.progress.leave()
	c.group.depth++
}

// GroupEnd performs the messages of the group. Messages between two ranks in one
// direction are matched in their order, also across groups. A group may have any number
// of messages. More than 96 need memory that is allocated when it is first needed and
// then kept; the first such group must not be captured (ErrUnsupported).
func (c *Comm) GroupEnd() error {
	if !c.progress.enter() {
		return fmt.Errorf("group end: %w", errClosed())
	}
	defer c.progress.leave()
	if c.group.depth == 0 {
		return fmt.Errorf("%w: group end without a start", framework.ErrInvalid)
	}
	c.group.depth--
	if c.group.depth > 0 {
		return nil
	}
	return c.flushGroup()
}

// Send sends count elements to peer, which receives them with Recv. Both must have the
// same size in bytes, otherwise both ranks fail with ErrInvalid. Types are not
// compared, whatever Options.Signatures says: as with NCCL, four elements of one byte
// may be received as one element of four bytes.
//
// On GPUs a message of 48 MiB or more is stored directly into the receive buffer if
// that is memory which comm.Exchange has made known to the sender. Two rules follow. Do
// not close such memory before every rank that may still send into it has done so;
// graphs keep its address. And after a receive has failed, parts of the message may
// still arrive in the buffer until the sender's kernel has ended.
func (c *Comm) Send(buf unsafe.Pointer, count int, t kernel.DataType, peer int, o *CallOptions) error {
	return c.message(SendRecv, o, func() error { return c.add(buf, 0, count, t, peer, 0) })
}

// Recv receives count elements that peer sends with Send.
func (c *Comm) Recv(buf unsafe.Pointer, count int, t kernel.DataType, peer int, o *CallOptions) error {
	return c.message(SendRecv, o, func() error { return c.add(buf, 0, count, t, peer, 1) })
}

// Gather collects count elements of every rank at root, in rank order. out is used on
// the root only, and has count elements for each rank. In place: on the root, in is its
// own part of out.
func (c *Comm) Gather(in, out unsafe.Pointer, count int, t kernel.DataType, root int, o *CallOptions) error {
	return c.message(Gather, o, func() error { return c.rooted(in, out, count, t, root, 1) })
}

// Scatter sends the count elements at r*count of root's in to each rank r. in is used
// on the root only. In place: on the root, out is its own part of in.
func (c *Comm) Scatter(in, out unsafe.Pointer, count int, t kernel.DataType, root int, o *CallOptions) error {
	return c.message(Scatter, o, func() error { return c.rooted(in, out, count, t, root, 0) })
}

// AllToAllV sends sendCounts[r] elements at sendDispls[r] to each rank r, and receives
// recvCounts[r] elements from it at recvDispls[r]. Displacements are in elements. in
// and out must not overlap. Over several hosts it is one call of all ranks: either all
// of them make it within a group that has other messages, or none does, and all name
// the same algorithm.
func (c *Comm) AllToAllV(in unsafe.Pointer, sendCounts, sendDispls []int, out unsafe.Pointer, recvCounts, recvDispls []int, t kernel.DataType, o *CallOptions) error {
	return c.message(AllToAllV, o, func() error {
		n := c.ranks
		for _, l := range [][]int{sendCounts, sendDispls, recvCounts, recvDispls} {
			if len(l) != n {
				return fmt.Errorf("%w: %d counts or displacements: expected one for each of %d ranks", framework.ErrInvalid, len(l), n)
			}
		}
		for r := range n {
			if err := c.add(in, sendDispls[r], sendCounts[r], t, r, 0); err != nil {
				return err
			}
			if err := c.add(out, recvDispls[r], recvCounts[r], t, r, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// rooted is Gather (receive is 1) or Scatter (0), seen from the root.
func (c *Comm) rooted(in, out unsafe.Pointer, count int, t kernel.DataType, root int, receive uint32) error {
	n, rank := c.ranks, c.rank
	if root < 0 || root >= n {
		return fmt.Errorf("%w: root %d: expected 0 to %d", framework.ErrInvalid, root, n-1)
	}
	whole, part := in, out // of the root, of all ranks
	if receive == 1 {
		whole, part = out, in
	}
	if rank != root {
		return c.add(part, 0, count, t, root, 1-receive)
	}
	for r := range n {
		if r == rank && count >= 0 && whole != nil && part == unsafe.Add(whole, count*t.Size()*r) {
			continue // in place
		}
		if err := c.add(whole, r*count, count, t, r, receive); err != nil {
			return err
		}
		if r != rank {
			continue
		}
		if err := c.add(part, 0, count, t, rank, 1-receive); err != nil {
			return err
		}
	}
	return nil
}

// message runs one call that adds messages, and performs them unless a group is
// open.
func (c *Comm) message(kind Collective, o *CallOptions, add func() error) error {
	if !c.progress.enter() {
		return fmt.Errorf("%v: %w", kind, errClosed())
	}
	defer c.progress.leave()
	err := c.check()
	if err == nil {
		c.group.kind = kind
		if o != nil {
			c.group.stream = o.Stream
		}
		err = c.settle(kind, c.group.stream)
	}
	if o != nil && o.Algorithm != "" && err == nil {
		c.group.by, err = c.choice.messagesBy(o.Algorithm)
	}
	if err == nil {
		err = add()
	}
	if err != nil {
		c.group.err = fmt.Errorf("%v: %w", kind, err)
	}
	if c.group.depth > 0 {
		return c.group.err
	}
	return c.flushGroup()
}

// add appends one message.
func (c *Comm) add(buf unsafe.Pointer, first, count int, t kernel.DataType, peer int, receive uint32) error {
	g := &c.group
	switch {
	case t >= kernel.DataTypes:
		return fmt.Errorf("%w: %v: no such element type", framework.ErrInvalid, t)
	case count < 0 || first < 0:
		return fmt.Errorf("%w: count %d at %d: expected at least 0", framework.ErrInvalid, count, first)
	case peer < 0 || peer >= c.ranks:
		return fmt.Errorf("%w: peer %d: expected 0 to %d", framework.ErrInvalid, peer, c.ranks-1)
	case count > math.MaxInt64/16 || first > math.MaxInt64/16:
		return fmt.Errorf("%w: %d elements of %v at %d: too many bytes", framework.ErrInvalid, count, t, first)
	case buf == nil && count > 0:
		return fmt.Errorf("%w: the buffer is nil, expected %d elements", framework.ErrInvalid, count)
	}
	if count > 0 {
		buf = unsafe.Add(buf, first*t.Size())
	}
	g.pinned = append(g.pinned, buf)
	g.list = append(g.list, kernelargs.Transfer{Buffer: uintptr(buf), Bytes: uint64(count) * uint64(t.Size()), Peer: uint32(peer), Receive: receive})
	return nil
}

// flushGroup performs what was collected. The group is empty afterwards, also
// after an error.
func (c *Comm) flushGroup() error {
	g := &c.group
	defer func() {
		clear(g.pinned)
		*g = group{pinned: g.pinned[:0], list: g.list[:0], extents: g.extents[:0], performed: g.performed}
	}()
	if g.err != nil || len(g.list) == 0 {
		return g.err
	}
	if err := g.apart(uint32(c.rank), c.opts.AnyOverlap); err != nil {
		return fmt.Errorf("%v: %w", g.kind, err)
	}
	slices.SortStableFunc(g.list, inOrder)
	by := g.by
	if by == nil {
		list := c.choice.of(SendRecv)
		if len(list) == 0 {
			return fmt.Errorf("%v: %w", g.kind, noKernel(c.comm, "messages", "transfers"))
		}
		by = list[0]
	}
	c.progress.board.Begin(0, g.kind, kernelargs.Total(g.list), by.Name, g.stream)
	g.performed = engine.Group{List: g.list, Stream: g.stream, Kind: g.kind, By: g.by}
	return by.Engine.Exchange(&g.performed)
}
