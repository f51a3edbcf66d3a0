package exec

import (
	"context"
	"errors"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Arenas of one plan: of those that are used for one size of chunk only, so many at most are kept.
const mostArenas = 16

// single reports whether one arena serves chunks of all sizes up to its own. Memory that launches of two sizes use is
// divided in two ways: what a rank is slow to read in one would be overwritten by the next. Packets that alternate between
// two halves are safe, as no rank gets two launches ahead.
func (e *Executor) single(staged bool) bool {
	p := e.plan
	scratch := 0
	for r := range p.GPUs {
		scratch = max(scratch, p.GPUs[r].ScratchChunks)
	}
	return !staged && (scratch == 0 || p.DoubleScratch && !e.use.raw)
}

// arena returns what serves chunks of so many bytes; staged says that it needs places for input and output. Where it has to
// be made all ranks come here, as they pass the same sizes.
func (e *Executor) arena(chunk uint64, staged bool) (*arena, error) {
	e.calls++
	single, kin := e.single(staged), -1
	for i, a := range e.arenas {
		if a.staged != staged {
			continue
		}
		if kin = i; a.chunk == chunk || single && chunk < a.chunk {
			a.used = e.calls
			return a, nil
		}
	}
	if !single || kin < 0 {
		kin = e.oldest()
	}
	if single && kin >= 0 && e.arenas[kin].staged == staged || len(e.arenas) >= mostArenas {
		if err := e.evict(kin); err != nil {
			return nil, err
		}
	}
	room := chunk
	if single {
		room = chunk + chunk/2/uint64(e.plan.Alignment)*uint64(e.plan.Alignment)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, err := e.newArena(ctx, room, staged)
	if err != nil {
		return nil, err
	}
	a.used = e.calls
	e.arenas = append(e.arenas, a)
	return a, nil
}

// oldest is the number of the arena that was not used for the longest time; -1: there is none.
func (e *Executor) oldest() int {
	oldest := -1
	for i, a := range e.arenas {
		if oldest < 0 || a.used < e.arenas[oldest].used {
			oldest = i
		}
	}
	return oldest
}

// evict closes an arena.
func (e *Executor) evict(number int) error {
	a := e.arenas[number]
	e.arenas = append(e.arenas[:number], e.arenas[number+1:]...)
	return e.release(a.close)
}

// put decides where the buffers of a call are.
func (e *Executor) put(c *Call, a *arena, b buffers, p *placed) error {
	rank := e.comm.Rank()
	if e.use.apart {
		base := a.memory.Addr()
		e.staged(c, b, at(base+uintptr(a.in[rank])), at(base+uintptr(a.out[rank])), p)
		return nil
	}
	if e.use.alias {
		return e.aliased(c, b, p)
	}
	p.in, p.out = c.Input, c.Output
	if !e.use.named[0] || !e.use.named[1] || !touch(c.Input, b.in, c.Output, b.out) && (!c.KeepInput || !e.use.writes[0]) {
		return nil
	}
	spare, err := e.room(b.in)
	if err != nil {
		return err
	}
	p.in, p.before = spare, moves{{spare, c.Input, b.in}}
	if e.use.writes[0] && !c.KeepInput && !touch(c.Input, b.in, c.Output, b.out) {
		p.after = moves{{c.Input, spare, b.in}}
	}
	return nil
}

// staged works in memory that all ranks reach.
func (e *Executor) staged(c *Call, b buffers, in, out unsafe.Pointer, p *placed) {
	p.in, p.out = in, out
	if !e.use.alias {
		if e.use.named[0] {
			p.before.add(move{in, c.Input, b.in})
		}
		if e.use.named[1] && !e.use.covers {
			p.before.add(move{out, c.Output, b.out})
		}
		if e.use.named[0] && e.use.writes[0] && !c.KeepInput {
			p.after.add(move{c.Input, in, b.in})
		}
		if e.use.named[1] {
			p.after.add(move{c.Output, out, b.out})
		}
		return
	}
	p.before = moves{{in, c.Input, b.in}}
	p.after = moves{{c.Output, out, b.out}}
}

// aliased works where the result is to be, with both buffers in one.
func (e *Executor) aliased(c *Call, b buffers, p *placed) error {
	in, out, bytes := overlap(e.plan.Collective, e.comm.Rank(), b)
	if bytes > b.out { // the result is a part of the input
		if unsafe.Add(c.Input, out) == c.Output {
			p.in, p.out = c.Input, c.Output
			return nil
		}
		spare, err := e.room(bytes)
		if err != nil {
			return err
		}
		p.in, p.out, p.before = spare, unsafe.Add(spare, out), moves{{spare, c.Input, b.in}}
		p.after = moves{{c.Output, p.out, b.out}}
		return nil
	}
	p.in, p.out = unsafe.Add(c.Output, in), c.Output
	if p.in != c.Input {
		p.before = moves{{p.in, c.Input, b.in}}
	}
	return nil
}

// touch reports whether two buffers have a byte in common.
func touch(a unsafe.Pointer, aBytes uint64, b unsafe.Pointer, bBytes uint64) bool {
	x, y := uint64(uintptr(a)), uint64(uintptr(b))
	return x < y+bBytes && y < x+aBytes
}

// room returns memory of this rank alone.
func (e *Executor) room(bytes uint64) (unsafe.Pointer, error) {
	if e.spare == nil || e.spare.Bytes() < bytes {
		m, err := device.AllocData(e.comm.Device(), bytes)
		if err != nil {
			return nil, err
		}
		if e.spare != nil {
			if err := e.release(e.spare.Close); err != nil {
				return nil, errors.Join(err, m.Close())
			}
		}
		e.spare = m
	}
	return at(e.spare.Addr()), nil
}

// stage makes copies, on a GPU on the call's stream.
func (e *Executor) stage(c *Call, list *moves) error {
	if list[0].bytes == 0 && list[1].bytes == 0 {
		return nil
	}
	for i := range list {
		m := &list[i]
		if m.bytes == 0 || m.to == m.from {
			continue
		}
		if d, ok := e.comm.Device().(device.Engine); ok {
			if err := d.Copy(c.Stream, uintptr(m.to), uintptr(m.from), m.bytes); err != nil {
				return err
			}
			continue
		}
		copy(unsafe.Slice((*byte)(m.to), m.bytes), unsafe.Slice((*byte)(m.from), m.bytes))
	}
	return nil
}
