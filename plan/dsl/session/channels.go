package session

import "github.com/mscclpp-go/mscclpp/plan/dsl"

func memories(s *Session, i int) (dsl.MemoryChannel, error) {
	return pick(s.memories, i, "memory channel")
}

func ports(s *Session, i int) (dsl.PortChannel, error) { return pick(s.ports, i, "port channel") }

func memoryChannel(s *Session, r *Request) (any, error) {
	c := s.p.MemoryChannel(r.DstTo, r.SrcOf)
	return keep(s, &s.memories, c, c.ID())
}

func portChannel(s *Session, r *Request) (any, error) {
	c := s.p.PortChannel(r.DstTo, r.SrcOf)
	return keep(s, &s.ports, c, c.ID())
}

// ordering calls an operation that takes a block and its joins.
func ordering[T any](of func(*Session, int) (T, error), f func(T, int, ...dsl.Sync)) func(*Session, *Request) (any, error) {
	return func(s *Session, r *Request) (any, error) {
		x, err := of(s, r.Handle)
		if err != nil {
			return nil, err
		}
		block, err := r.block()
		if err != nil {
			return nil, err
		}
		sync, err := r.sync()
		if err == nil {
			f(x, block, sync)
		}
		return nil, err
	}
}

// moving calls a transfer that a group of blocks may share.
func moving[T any](of func(*Session, int) (T, error), f func(T, dsl.Chunk, dsl.Chunk, dsl.On)) func(*Session, *Request) (any, error) {
	return func(s *Session, r *Request) (any, error) {
		x, err := of(s, r.Handle)
		if err != nil {
			return nil, err
		}
		dst, src, err := r.chunks()
		if err != nil {
			return nil, err
		}
		on, err := s.on(r)
		if err == nil {
			f(x, dst, src, on)
		}
		return nil, err
	}
}

// requesting calls a transfer that one block requests of a port.
func requesting(f func(dsl.PortChannel, dsl.Chunk, dsl.Chunk, int)) func(*Session, *Request) (any, error) {
	return func(s *Session, r *Request) (any, error) {
		x, err := ports(s, r.Handle)
		if err != nil {
			return nil, err
		}
		dst, src, err := r.chunks()
		if err != nil {
			return nil, err
		}
		block, err := r.block()
		if err == nil {
			f(x, dst, src, block)
		}
		return nil, err
	}
}

func memoryReduce(s *Session, r *Request) (any, error) {
	c, err := memories(s, r.Handle)
	if err != nil {
		return nil, err
	}
	dst, src, err := r.chunks()
	if err != nil {
		return nil, err
	}
	o, err := r.reduce()
	if err != nil {
		return nil, err
	}
	on, err := s.on(r)
	if err == nil {
		c.Reduce(dst, src, r.others(), on, o)
	}
	return nil, err
}

func switchChannel(s *Session, r *Request) (any, error) {
	t, err := r.bufferType()
	if err != nil {
		return nil, err
	}
	c := s.p.SwitchChannel(r.List, t)
	if err := s.p.Err(); err != nil {
		return nil, err
	}
	s.switches = append(s.switches, c)
	ids := map[int]int{}
	for _, rank := range r.List {
		ids[rank] = c.ID(rank)
	}
	return struct {
		Handle int         `json:"handle"`
		IDs    map[int]int `json:"ids"`
	}{len(s.switches) - 1, ids}, nil
}

func (s *Session) view(r *Request) (dsl.SwitchView, error) {
	c, err := pick(s.switches, r.Handle, "switch channel")
	if err != nil {
		return dsl.SwitchView{}, err
	}
	v := c.At(r.Rank)
	return v, s.p.Err()
}

func switchReduce(s *Session, r *Request) (any, error) {
	v, err := s.view(r)
	if err != nil {
		return nil, err
	}
	block, err := r.block()
	if err != nil {
		return nil, err
	}
	o, err := r.reduce()
	if err != nil {
		return nil, err
	}
	if r.Dst == nil {
		return nil, &dsl.Error{Kind: dsl.TypeError, Text: r.Call + " needs dst"}
	}
	v.Reduce(r.Offset, r.Size, dsl.Chunk(*r.Dst), block, o)
	return nil, nil
}

func broadcasting(f func(dsl.SwitchView, dsl.Chunk, int, int, int)) func(*Session, *Request) (any, error) {
	return func(s *Session, r *Request) (any, error) {
		v, err := s.view(r)
		if err != nil {
			return nil, err
		}
		block, err := r.block()
		if err != nil {
			return nil, err
		}
		if r.Src == nil {
			return nil, &dsl.Error{Kind: dsl.TypeError, Text: r.Call + " needs src"}
		}
		f(v, dsl.Chunk(*r.Src), r.Offset, r.Size, block)
		return nil, nil
	}
}
