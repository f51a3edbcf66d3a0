package tcp

import (
	"context"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/fault"
)

// target is a peer's memory, under the number by which triggers cite it.
type target struct {
	group  *outbound
	conn   framework.ID
	handle uint32
	key    key
}

// source is own memory.
type source struct {
	region *region
	id     framework.ID
}

// BindMemory gives a number to own memory, or to a peer's.
func (p *proxy) BindMemory(ctx context.Context, number uint32, b framework.MemoryBinding) error {
	if err := p.bindMemory(ctx, number, b); err != nil {
		return failure("bind memory", err)
	}
	return nil
}

func (p *proxy) bindMemory(ctx context.Context, number uint32, b framework.MemoryBinding) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if number >= memories || (b.Local == 0) == (b.Conn == 0) {
		return fmt.Errorf("%w: memory %d: expected a number below %d, and either a registration or a connection", framework.ErrInvalid, number, memories)
	}
	p.binds.Lock()
	defer p.binds.Unlock()
	if p.slots.sources[number].Load() != nil || p.slots.targets[number].Load() != nil {
		return fmt.Errorf("%w: memory %d is bound already", framework.ErrInvalid, number)
	}
	if b.Local != 0 {
		r, err := find[*region](p.t, b.Local, "registration")
		if err != nil {
			return err
		}
		if !r.retain() {
			return fmt.Errorf("%w: registration %d", framework.ErrClosed, b.Local)
		}
		p.slots.sources[number].Store(&source{r, b.Local})
		return nil
	}
	g, k, err := p.reach(ctx, b.Conn, b.Key)
	if err != nil {
		return err
	}
	p.slots.targets[number].Store(&target{group: g, conn: b.Conn, handle: number, key: k})
	return nil
}

// BindSemaphore gives a number to a peer's semaphore.
func (p *proxy) BindSemaphore(ctx context.Context, number uint32, b framework.SemaphoreBinding) error {
	if err := p.bindSemaphore(ctx, number, b); err != nil {
		return failure("bind semaphore", err)
	}
	return nil
}

func (p *proxy) bindSemaphore(ctx context.Context, number uint32, b framework.SemaphoreBinding) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if number >= semaphores {
		return fmt.Errorf("%w: semaphore %d: expected a number below %d", framework.ErrInvalid, number, semaphores)
	}
	p.binds.Lock()
	defer p.binds.Unlock()
	if p.slots.marks[number].Load() != nil {
		return fmt.Errorf("%w: semaphore %d is bound already", framework.ErrInvalid, number)
	}
	g, k, err := p.reach(ctx, b.Conn, b.Key)
	if err != nil {
		return err
	}
	if b.Offset > k.bytes || k.bytes-b.Offset < 8 || (uint64(k.align)+b.Offset)%8 != 0 {
		return fault.Of(g.peer, fmt.Errorf("%w: semaphore at offset %d of %d bytes: expected 8 aligned bytes", framework.ErrInvalid, b.Offset, k.bytes))
	}
	p.slots.marks[number].Store(&mark{target{group: g, conn: b.Conn, handle: memories + number, key: k}, b.Offset})
	return nil
}

// reach returns the streams over which a key's memory is reached, and makes them
// when they are first needed. The caller holds p.binds.
func (p *proxy) reach(ctx context.Context, conn framework.ID, parcel framework.Parcel) (*outbound, key, error) {
	c, err := find[*connection](p.t, conn, "connection")
	if err != nil {
		return nil, key{}, err
	}
	k, err := c.key(parcel)
	if err != nil {
		return nil, k, err
	}
	if g := p.groups[conn]; g != nil {
		return g, k, nil
	}
	if p.stopping.Load() {
		return nil, k, fmt.Errorf("%w: the proxy was stopped", framework.ErrClosed)
	}
	g, err := newOutbound(ctx, p, c)
	if err != nil {
		return nil, k, err
	}
	if !onHost(c.config.Device) {
		p.restless.Store(true)
	}
	p.groups[conn] = g
	return g, k, nil
}

// Forget empties the slots that were bound with ids that are closed.
func (p *proxy) Forget(closed map[framework.ID]bool) {
	p.binds.Lock()
	defer p.binds.Unlock()
	for i := range p.slots.sources {
		if s := p.slots.sources[i].Load(); s != nil && closed[s.id] {
			p.slots.sources[i].Store(nil)
			s.region.release()
		}
		if s := p.slots.targets[i].Load(); s != nil && closed[s.conn] {
			p.slots.targets[i].Store(nil)
		}
	}
	for i := range p.slots.marks {
		if s := p.slots.marks[i].Load(); s != nil && closed[s.conn] {
			p.slots.marks[i].Store(nil)
		}
	}
	for conn, g := range p.groups {
		if closed[conn] {
			delete(p.groups, conn)
			g.close()
		}
	}
}
