package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// setting is a plan on a communicator, before any call.
type setting struct {
	comm     *comm.Communicator
	plan     *schema.Plan
	use      use
	tables   *tables
	reach    *reach
	number   uint32 // in reports of waits
	switched bool   // there is a switch between the ranks that share memory
}

// arena is the memory of launches for chunks of some size: a part that the ranks open to each other, with channels, and
// a part of this rank alone.
type arena struct {
	shape
	staged  bool
	memory  *comm.Memory
	shared  *comm.Symmetric
	window  *comm.SwitchChannel // over the memory of all that share it; nil: none
	ports   []*comm.PortChannel
	private device.Memory
	args    args   // those that all launches share
	table   []slot // buffers and windows, as the kernel has them
	used    uint64

	resolved uint64 // where blocks note the slots of launches that reach buffers where they are
}

// newArena makes one. Collective.
func (e *setting) newArena(ctx context.Context, chunk uint64, staged bool) (a *arena, err error) {
	if err := fitting(e.plan, chunk); err != nil {
		return nil, err
	}
	a = &arena{shape: newShape(e.plan, &e.use, chunk, staged), staged: staged}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("plan %s: memory for chunks of %d bytes: %w", e.plan.Name, chunk, err), a.close())
		}
	}()
	rank := e.comm.Rank()
	if e.use.ports && slices.Max(a.bytes) > 1<<32 {
		return a, invalid("%d bytes: ports reach 4 GiB", slices.Max(a.bytes))
	}
	if err := e.alike(ctx, chunk, staged); err != nil {
		return a, err
	}
	bytes := a.bytes[rank]
	if e.switched {
		bytes = windowBytes(a.bytes)
	}
	if a.memory, err = e.comm.Alloc(bytes); err != nil {
		return a, err
	}
	var at []uint64
	if a.shared, at, err = e.reach.exchange(ctx, e.comm, a.memory); err != nil {
		return a, err
	}
	if err = a.openPorts(ctx, e); err != nil {
		return a, err
	}
	if err = a.openWindow(ctx, e); err != nil {
		return a, err
	}
	return a, a.fill(e, at)
}

// alike compares the sizes of all ranks: memory that is divided in two ways would be written where it is not.
func (e *setting) alike(ctx context.Context, chunk uint64, staged bool) error {
	mine := binary.LittleEndian.AppendUint64(nil, chunk)
	if mine = append(mine, 0); staged {
		mine[8] = 1
	}
	all, err := e.comm.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	for r, theirs := range all {
		if len(theirs) == 9 && string(theirs[:8]) == string(mine[:8]) && theirs[8] != mine[8] {
			return &framework.Error{Op: "compare buffers", Peer: r, Err: invalid("its buffers are in exchanged memory, or those of rank %d, and not both", e.comm.Rank())}
		}
		if string(theirs) != string(mine) {
			return &framework.Error{Op: "compare sizes", Peer: r, Err: invalid("its buffers have chunks of another size")}
		}
	}
	return nil
}

// openPorts makes the port channels to other ranks, pair by pair: all ranks do so in the same order.
func (a *arena) openPorts(ctx context.Context, e *setting) error {
	rank, peers := e.comm.Rank(), e.plan.GPUs[e.comm.Rank()].Peers(schema.Port)
	a.ports = make([]*comm.PortChannel, len(peers))
	for peer := range e.plan.GPUs {
		mine := positions(peers, peer)
		theirs := positions(e.plan.GPUs[peer].Peers(schema.Port), rank)
		if peer == rank { // memory channels
			continue
		}
		for i := range max(len(mine), len(theirs)) {
			p, err := e.comm.PortChannel(ctx, peer, a.memory, a.memory)
			if err != nil {
				return err
			}
			if i < len(mine) {
				a.ports[mine[i]] = p
			}
		}
	}
	return nil
}

// fill makes the tables of the kernel, given where the memory of each rank begins.
func (a *arena) fill(e *setting, at []uint64) (err error) {
	p, rank := e.plan, e.comm.Rank()
	g := &p.GPUs[rank]
	channels := links(g)
	var b builder
	b.add(stateBytes)
	cursors := b.add(cursorBytes * len(g.Blocks))
	meetings := b.add(meetingBytes * e.tables.meetings)
	expected := b.add(countsBytes * len(channels)) // signals that this rank has waited for, and on the host those that it has sent
	unheard := b.add(8)                            // the counter of channels whose other end no rank has
	semaphores := make([]uint32, len(g.Semaphores))
	for i, s := range g.Semaphores {
		semaphores[i] = uint32(s.Init)
	}
	sem := put(&b, semaphores)
	a.table = append(a.slots(at), a.windows(e.tables.groups, a.staged, a.begin(e))...)
	blocks, ops, operands, ids := put(&b, e.tables.blocks), put(&b, reachable(e.tables, a.table, a.window != nil)), put(&b, based(e.tables.operands, a.table)), put(&b, e.tables.ids)
	slots := put(&b, a.table)
	resolved := 0
	if e.direct() {
		resolved = b.add(len(a.table) * int(unsafe.Sizeof(slot{})) * len(g.Blocks))
	}
	memory := b.add(len(channels) * int(unsafe.Sizeof(kernel.SemaphoreHandle{})))
	ports := b.add(len(a.ports) * int(unsafe.Sizeof(kernel.PortChannelHandle{})))
	notices := make([]uint64, len(at))
	for r, base := range at {
		if r != rank && base != 0 {
			notices[r] = base + uint64(rank)*noticeBytes
		}
	}
	notice := put(&b, notices)
	if a.private, err = e.comm.Device().Alloc(uint64(len(b.bytes))); err != nil {
		return err
	}
	base := a.private.Addr()
	for k, peer := range channels {
		own := at[rank] + a.counter(len(at), k)
		h := kernel.SemaphoreHandle{Inbound: uintptr(own), Expected: base + uintptr(expected+countsBytes*k), Outbound: base + uintptr(unheard),
			Control: e.comm.Control(), Peer: uint32(peer), ID: uint32(k)}
		if _, other, ok := opposite(p, rank, k); ok {
			h.Outbound = uintptr(at[peer] + a.counter(len(at), other))
		}
		set(&b, memory, k, h)
	}
	for k, port := range a.ports {
		if port != nil {
			set(&b, ports, k, port.Handle())
		}
	}
	if err := write(e.comm.Device(), a.private.Addr(), b.bytes); err != nil {
		return err
	}
	where := func(offset int) uintptr { return base + uintptr(offset) }
	a.resolved = uint64(where(resolved))
	a.args = args{
		tableArgs{
			Control: e.comm.Control(), State: where(0), Cursors: where(cursors), Meetings: where(meetings), Semaphores: where(sem),
			Blocks: where(blocks), Ops: where(ops), Operands: where(operands), IDs: where(ids), Slots: where(slots),
			Memory: where(memory), Ports: where(ports), Notice: a.memory.Addr(), Peers: where(notice),
		},
		callArgs{Half: a.half},
		shapeArgs{BlockCount: uint32(len(g.Blocks)), Alignment: uint32(p.Alignment), Rank: uint32(rank), Ranks: uint32(len(at)), Kernel: e.number},
	}
	return nil
}

// slots are the addresses of all buffers, as far as they are mapped here.
func (a *arena) slots(at []uint64) []slot {
	out := make([]slot, 3*len(at))
	for r, base := range at {
		for i, offset := range []uint64{a.in[r], a.out[r], a.scratch} {
			out[3*r+i].Offset = offset
			if base != 0 {
				out[3*r+i].Address = base + offset
			}
		}
	}
	return out
}

// based are operands with the addresses of scratch memory.
func based(list []operand, slots []slot) []operand {
	out := slices.Clone(list)
	for i := range out {
		if s := out[i].Slot; s%3 == 2 {
			out[i].Base = slots[s].Address
		}
	}
	return out
}

// state is the kernel's, on the host.
func (a *arena) state() *state { return (*state)(at(a.private.Addr())) }

func (a *arena) close() error {
	var errs []error
	for _, p := range a.ports {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if a.window != nil {
		errs = append(errs, a.window.Close())
	}
	if a.shared != nil {
		errs = append(errs, a.shared.Close())
	}
	if a.private != nil {
		errs = append(errs, a.private.Close())
	}
	if a.memory != nil {
		errs = append(errs, a.memory.Close())
	}
	return errors.Join(errs...)
}

// builder lays tables out one behind the other.
type builder struct{ bytes []byte }

// add appends room for zeros, and returns where it begins.
func (b *builder) add(n int) int {
	at := len(b.bytes)
	b.bytes = append(b.bytes, make([]byte, int(roundUp(uint64(n), line)))...)
	return at
}

// put appends a table.
func put[T any](b *builder, list []T) int {
	at := b.add(len(list) * int(unsafe.Sizeof(*new(T))))
	for i := range list {
		set(b, at, i, list[i])
	}
	return at
}

// set writes element i of the table that begins at a place.
func set[T any](b *builder, at, i int, v T) {
	size := int(unsafe.Sizeof(v))
	copy(b.bytes[at+i*size:], unsafe.Slice((*byte)(unsafe.Pointer(&v)), size))
}

// write copies bytes to memory of a device.
func write(d device.Device, to uintptr, data []byte) error {
	if w, ok := d.(interface {
		WriteAt(data []byte, addr uintptr) error
	}); ok {
		return w.WriteAt(data, to)
	}
	copy(unsafe.Slice((*byte)(at(to)), len(data)), data)
	return nil
}

// at turns an address outside of Go's heap into a pointer.
func at(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
