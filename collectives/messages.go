package collectives

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/gpu"
)

// group collects messages between GroupStart and GroupEnd.
type group struct {
	depth  int
	count  int
	stream gpu.Stream
	pinned []unsafe.Pointer // keeps the callers' buffers in place until the launch
	err    error
	kind   Collective
}

// GroupStart begins a group: the messages of all calls until the matching GroupEnd
// are performed together, in whatever order they can be, so that two ranks which
// send to each other before they receive do not wait for each other forever.
// Groups nest; only the outermost counts. Reductions and the like are performed at
// once also within a group. A Comm has one group at a time, whoever started it.
func (c *Comm) GroupStart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group.depth++
}

// GroupEnd performs the messages of the group. Messages between two ranks in one
// direction are matched in their order.
func (c *Comm) GroupEnd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group.depth == 0 {
		return fmt.Errorf("%w: group end without a start", framework.ErrInvalid)
	}
	c.group.depth--
	if c.group.depth > 0 {
		return nil
	}
	return c.flushGroup()
}

// Send sends count elements to peer, which receives them with Recv.
func (c *Comm) Send(buf unsafe.Pointer, count int, t device.DataType, peer int, o *CallOptions) error {
	return c.message(SendRecv, o, func() error { return c.add(buf, 0, count, t, peer, 0) })
}

// Recv receives count elements that peer sends with Send.
func (c *Comm) Recv(buf unsafe.Pointer, count int, t device.DataType, peer int, o *CallOptions) error {
	return c.message(SendRecv, o, func() error { return c.add(buf, 0, count, t, peer, 1) })
}

// Gather collects count elements of every rank at root, in rank order. out is used
// there only. In place: on the root, in is its own part of out.
func (c *Comm) Gather(in, out unsafe.Pointer, count int, t device.DataType, root int, o *CallOptions) error {
	return c.message(Gather, o, func() error { return c.rooted(in, out, count, t, root, 1) })
}

// Scatter sends count elements at r*count of root's in to each rank r. In place: on
// the root, out is its own part of in.
func (c *Comm) Scatter(in, out unsafe.Pointer, count int, t device.DataType, root int, o *CallOptions) error {
	return c.message(Scatter, o, func() error { return c.rooted(in, out, count, t, root, 0) })
}

// AllToAllV sends sendCounts[r] elements at sendDispls[r] to each rank r, and
// receives recvCounts[r] at recvDispls[r] from it. in and out must not overlap.
func (c *Comm) AllToAllV(in unsafe.Pointer, sendCounts, sendDispls []int, out unsafe.Pointer, recvCounts, recvDispls []int, t device.DataType, o *CallOptions) error {
	return c.message(AllToAllV, o, func() error {
		n := c.comm.Size()
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
func (c *Comm) rooted(in, out unsafe.Pointer, count int, t device.DataType, root int, receive uint32) error {
	n, rank := c.comm.Size(), c.comm.Rank()
	if root < 0 || root >= n {
		return fmt.Errorf("%w: root %d: expected 0 to %d", framework.ErrInvalid, root, n-1)
	}
	whole, part := in, out // of the root, of everybody
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
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.ready()
	if err == nil {
		c.group.kind = kind
		if o != nil {
			c.group.stream = o.Stream
			if o.Algorithm != "" && o.Algorithm != c.messages.name {
				err = fmt.Errorf("%w: algorithm %q: expected %s", framework.ErrInvalid, o.Algorithm, c.messages.name)
			}
		}
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
func (c *Comm) add(buf unsafe.Pointer, first, count int, t device.DataType, peer int, receive uint32) error {
	g := &c.group
	switch {
	case t >= device.DataTypes:
		return fmt.Errorf("%w: %v: no such element type", framework.ErrInvalid, t)
	case count < 0 || first < 0:
		return fmt.Errorf("%w: count %d at %d: expected at least 0", framework.ErrInvalid, count, first)
	case peer < 0 || peer >= c.comm.Size():
		return fmt.Errorf("%w: peer %d: expected 0 to %d", framework.ErrInvalid, peer, c.comm.Size()-1)
	case count > math.MaxInt64/16 || first > math.MaxInt64/16:
		return fmt.Errorf("%w: %d elements of %v at %d: too many bytes", framework.ErrInvalid, count, t, first)
	case buf == nil && count > 0:
		return fmt.Errorf("%w: the buffer is nil, expected %d elements", framework.ErrInvalid, count)
	case g.count == maxTransfers:
		return fmt.Errorf("%w: more than %d messages in a group", framework.ErrUnsupported, maxTransfers)
	}
	if count > 0 {
		buf = unsafe.Add(buf, first*t.Size())
	}
	g.pinned = append(g.pinned, buf)
	// Sorted by direction and peer, and within that in the order of the calls: what
	// is there already stays in front.
	list := c.groupArgs.List[:g.count+1]
	i := g.count
	for i > 0 && (list[i-1].Receive > receive || list[i-1].Receive == receive && list[i-1].Peer > uint32(peer)) {
		list[i] = list[i-1]
		i--
	}
	list[i] = transfer{Buffer: uintptr(buf), Bytes: uint64(count) * uint64(t.Size()), Peer: uint32(peer), Receive: receive}
	g.count++
	return nil
}

// flushGroup performs what was collected. The group is empty afterwards, also
// after an error.
func (c *Comm) flushGroup() error {
	g, a := &c.group, c.groupArgs
	n := g.count
	l := c.launch
	l.Stream = g.stream
	err, kind := g.err, g.kind
	defer func() {
		clear(g.pinned)
		*g = group{pinned: g.pinned[:0]}
	}()
	if err != nil || n == 0 {
		return err
	}
	if c.messages == nil {
		return fmt.Errorf("%v: %w: no transport has a kernel for messages", kind, framework.ErrUnavailable)
	}
	k := c.messages.loaded[device.Uint8]
	if k == nil {
		if err := c.load(c.messages, device.Uint8); err != nil {
			return fmt.Errorf("%v: %w", kind, err)
		}
		k = c.messages.loaded[device.Uint8]
	}
	a.Transfers = uint32(n)
	a.Signature.Collective = uint32(kind)
	size := unsafe.Offsetof(a.List) + uintptr(n)*unsafe.Sizeof(a.List[0])
	if !c.host {
		size = unsafe.Sizeof(*a)
	}
	if err := k.Launch(l, unsafe.Pointer(a), size); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	return c.outcomeOfGroup(kind)
}

func (c *Comm) outcomeOfGroup(kind Collective) error {
	if !c.host {
		return nil
	}
	if err := c.comm.Check(); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	if m := c.found(mismatchOffset); m >= mismatchLength {
		cause := &framework.Error{Op: kind.String(), Peer: int(m - mismatchLength),
			Err: fmt.Errorf("%w: its message has another length than was expected here", framework.ErrInvalid)}
		c.comm.Abort(cause) // half of a message cannot be taken back
		return cause
	}
	return nil
}
