package collectives

import (
	"cmp"
	"errors"
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// leastListBytes is the size of the first memory for lists: 2,730 messages.
const leastListBytes = 64 << 10

// group collects messages between GroupStart and GroupEnd.
type group struct {
	depth   int
	list    []kernelargs.Transfer
	extents []extent // for apart
	stream  device.Stream
	pinned  []unsafe.Pointer // keeps the callers' buffers in place until the launch
	err     error
	kind    Collective
	by      *algorithm
}

// GroupStart begins a group. The messages of all calls until the matching GroupEnd are
// performed together, in any order, so that two ranks that both send before they
// receive do not deadlock. What a group receives must not overlap what else it receives or sends. Groups nest; only the outermost counts. Collectives that are
// not made of messages are performed at once, also within a group. A Comm has one group
// at a time, whichever goroutine started it.
func (c *Comm) GroupStart() {
	c.mu.Lock()
	defer c.mu.Unlock()
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
func (c *Comm) rooted(in, out unsafe.Pointer, count int, t kernel.DataType, root int, receive uint32) error {
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
	if !c.progress.enter() {
		return fmt.Errorf("%v: %w", kind, errClosed())
	}
	defer c.progress.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.ready()
	if err == nil {
		c.group.kind = kind
		if o != nil {
			c.group.stream = o.Stream
		}
		if c.ports != nil && c.ports.courier != nil {
			err = c.decide(c.group.stream)
		}
		if o != nil && err == nil {
			if o.Algorithm != "" {
				if c.group.by = c.messagesBy(o.Algorithm); c.group.by == nil {
					err = c.noMessagesBy(o.Algorithm)
				}
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
func (c *Comm) add(buf unsafe.Pointer, first, count int, t kernel.DataType, peer int, receive uint32) error {
	g := &c.group
	switch {
	case t >= kernel.DataTypes:
		return fmt.Errorf("%w: %v: no such element type", framework.ErrInvalid, t)
	case count < 0 || first < 0:
		return fmt.Errorf("%w: count %d at %d: expected at least 0", framework.ErrInvalid, count, first)
	case peer < 0 || peer >= c.comm.Size():
		return fmt.Errorf("%w: peer %d: expected 0 to %d", framework.ErrInvalid, peer, c.comm.Size()-1)
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

// inOrder sorts messages by direction and peer, as the kernel expects them.
func inOrder(a, b kernelargs.Transfer) int {
	return cmp.Or(cmp.Compare(a.Receive, b.Receive), cmp.Compare(a.Peer, b.Peer))
}

// flushGroup performs what was collected. The group is empty afterwards, also
// after an error.
func (c *Comm) flushGroup() error {
	g := &c.group
	err, kind := g.err, g.kind
	defer func() {
		clear(g.pinned)
		*g = group{pinned: g.pinned[:0], list: g.list[:0], extents: g.extents[:0]}
	}()
	if err != nil || len(g.list) == 0 {
		return err
	}
	if err := g.apart(uint32(c.comm.Rank())); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	slices.SortStableFunc(g.list, inOrder)
	if c.ports != nil {
		perform := c.ports.messages
		switch {
		case c.ports.bundles(g):
			perform = c.ports.allToAllV
		case c.ports.courier != nil && c.ports.hierarchy.mails() && (g.by == nil || g.by.name == hierarchicalDirect):
			perform = c.ports.enqueueMail
		}
		if err := perform(g.list, g.stream); err != nil {
			return fmt.Errorf("%v: %w", kind, err)
		}
		return nil
	}
	marks, err := c.follow(g.stream)
	if err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	c.watch.enterGroup(g.list)
	err = c.exchange(g)
	if marks {
		err = errors.Join(err, c.order.mark.Record(g.stream))
	}
	c.watch.leaveGroup()
	if err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	return c.outcomeOfGroup(kind)
}

// exchange launches the kernel for a group that is sorted.
func (c *Comm) exchange(g *group) error {
	if c.messages == nil {
		return c.noKernel("messages", "transfers")
	}
	alg := g.by
	if alg == nil {
		alg = c.messages
	}
	if alg.name == linesName {
		return c.exchangeLines(g, alg)
	}
	k, err := c.messageKernel(alg, g.stream)
	if err != nil {
		return err
	}
	l := c.launch
	l.Stream = g.stream
	return c.launchGroup(k, l, g)
}

// launchGroup launches a kernel that takes any number of messages.
func (c *Comm) launchGroup(k device.Kernel, l device.Launch, g *group) error {
	a := c.groupArgs
	a.Signature.Collective = uint32(g.kind)
	a.Transfers, a.Listed, a.First, a.Memory = uint32(len(g.list)), 0, 0, 0
	if len(g.list) <= kernelargs.MaxTransfers {
		c.enlist(a, g.list)
		return k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
	}
	memory, err := c.lists.room(c.comm.Device(), len(g.list), g.stream)
	if err != nil {
		return err
	}
	a.Memory = memory.Addr()
	for rest := g.list; len(rest) > 0; rest = rest[a.Listed:] {
		a.Listed = c.enlist(a, rest)
		if err := k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a)); err != nil {
			return err
		}
		a.First += uint64(a.Listed)
	}
	a.Listed = 0
	return k.Launch(l, unsafe.Pointer(a), unsafe.Sizeof(*a))
}

// enlist puts messages into the argument, as many as have room, and of those received, if
// they are long, where their senders have the buffers. It returns how many.
func (c *Comm) enlist(a *kernelargs.TransferArgs, list []kernelargs.Transfer) uint32 {
	n := copy(a.List[:], list)
	for i, x := range list[:n] {
		a.Theirs[i] = 0
		if x.Receive == 0 || x.Bytes < a.LongBytes {
			continue
		}
		if s, offset, ok := c.comm.Find(x.Buffer, x.Bytes); ok {
			a.Theirs[i] = s.OwnAt(int(x.Peer)) + uintptr(offset)
		}
	}
	return uint32(n)
}

// messageLists is memory for lists of messages. What was given out before stays until the
// Comm is closed: kernels that are still to run, and captured graphs, read it.
type messageLists []device.Memory

// room returns memory for a list of so many messages.
func (l *messageLists) room(d device.Device, messages int, stream device.Stream) (device.Memory, error) {
	bytes := uint64(messages) * kernelargs.TransferBytes
	if n := len(*l); n > 0 && (*l)[n-1].Bytes() >= bytes {
		return (*l)[n-1], nil
	}
	if e, ok := d.(device.Engine); ok {
		state, err := e.Query(stream)
		if err != nil {
			return nil, err
		}
		if state == device.StreamCapturing {
			return nil, fmt.Errorf("%w: a group of %d messages is captured before one as long was performed: its memory cannot be made now", framework.ErrUnsupported, messages)
		}
	}
	m, err := d.Alloc(max(leastListBytes, 2*bytes))
	if err != nil {
		return nil, fmt.Errorf("memory for a group of %d messages: %w", messages, err)
	}
	*l = append(*l, m)
	return m, nil
}

func (c *Comm) outcomeOfGroup(kind Collective) error {
	if !c.host {
		return nil
	}
	if err := c.comm.Check(); err != nil {
		return fmt.Errorf("%v: %w", kind, err)
	}
	if m := c.found(kernelargs.MismatchOffset); m >= kernelargs.MismatchLength {
		cause := c.otherLength(kind.String(), m)
		c.comm.Abort(cause) // half of a message cannot be taken back
		return cause
	}
	return nil
}

// otherLength is the error for a mismatch of lengths that a kernel has noted.
func (c *Comm) otherLength(op string, mismatch uint32) error {
	word := func(offset uintptr) uint64 { return *(*uint64)(unsafe.Pointer(c.note(offset))) }
	return &framework.Error{Op: op, Peer: int(mismatch - kernelargs.MismatchLength),
		Err: fmt.Errorf("%w: its message has a length of %d bytes: expected %d as rank %d receives", framework.ErrInvalid, word(kernelargs.SentOffset), word(kernelargs.ExpectedOffset), c.comm.Rank())}
}

// noMessagesBy says which algorithms of messages there are.
func (c *Comm) noMessagesBy(name string) error {
	return fmt.Errorf("%w: algorithm %q: expected one of %s", framework.ErrInvalid, name, strings.Join(c.messageNames(), " "))
}
