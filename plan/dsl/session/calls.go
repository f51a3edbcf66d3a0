package session

import (
	"encoding/json"
	"fmt"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

func (s *Session) begin(r *Request) error {
	if s.p != nil {
		return &dsl.Error{Kind: dsl.RuntimeError, Text: "the session has a program"}
	}
	off := func(b *bool) bool { return b != nil && !*b }
	o := dsl.Options{
		Name: r.Name, Ranks: r.Ranks, Protocol: schema.Protocol(r.Protocol), NoFusion: off(r.Fusion), NoAutoSync: off(r.AutoSync),
		NoInterleaving: r.Replication == "none", ReuseResources: r.Reuse, ThreadsPerBlock: r.Threads, DoubleScratch: r.Double,
		Alignment: r.Alignment, MinSize: r.MinSize, MaxSize: r.MaxSize, Upstream: !r.Corrected,
	}
	if r.Instances != nil {
		if o.Instances = *r.Instances; o.Instances == 0 {
			o.Instances = -1 // which is no number of instances either
		}
	}
	if r.Replication != "" && r.Replication != "none" && r.Replication != "interleaved" {
		return &dsl.Error{Kind: dsl.ValueError, Text: fmt.Sprintf("no replication_policy %q: expected interleaved or none", r.Replication)}
	}
	c := r.Collective
	p := dsl.New(dsl.Custom(c.Name, c.InPlace, c.Inputs, c.Outputs), o)
	if err := p.Err(); err != nil {
		return err
	}
	s.p = p
	return nil
}

func slice(s *Session, r *Request) (any, error) {
	t, err := r.bufferType()
	if err != nil {
		return nil, err
	}
	b := s.p.Rank(r.Rank).View(t, r.Offset, r.Size)
	return Chunk(b.Slice(r.Start, r.Stop)), nil
}

func group(s *Session, r *Request) (any, error) {
	g := s.p.Group(r.List...)
	if err := s.p.Err(); err != nil {
		return nil, err
	}
	s.groups = append(s.groups, g)
	return len(s.groups) - 1, nil
}

func copying(f func(dsl.Rank, dsl.Chunk, dsl.Chunk, dsl.On)) func(*Session, *Request) (any, error) {
	return func(s *Session, r *Request) (any, error) {
		dst, src, err := r.chunks()
		if err != nil {
			return nil, err
		}
		on, err := s.on(r)
		if err == nil {
			f(s.p.Rank(r.Rank), dst, src, on)
		}
		return nil, err
	}
}

func reduce(s *Session, r *Request) (any, error) {
	dst, src, err := r.chunks()
	if err != nil {
		return nil, err
	}
	o, err := r.reduce()
	if err != nil {
		return nil, err
	}
	on, err := s.on(r)
	if err != nil {
		return nil, err
	}
	if r.Packet {
		s.p.Rank(r.Rank).ReducePackets(dst, src, r.others(), on, o)
	} else {
		s.p.Rank(r.Rank).Reduce(dst, src, r.others(), on, o)
	}
	return nil, nil
}

func semaphore(s *Session, r *Request) (any, error) {
	x := s.p.Semaphore(r.Rank, r.Value)
	return keep(s, &s.semaphores, x, x.ID)
}

func counting(f func(dsl.Semaphore, int, ...dsl.Sync)) func(*Session, *Request) (any, error) {
	return ordering(func(s *Session, i int) (dsl.Semaphore, error) { return pick(s.semaphores, i, "semaphore") }, f)
}

func compile(s *Session, _ *Request) (any, error) {
	plan, err := s.p.Compile()
	if err != nil {
		return nil, err
	}
	return json.RawMessage(plan.Encode(schema.Compact)), nil
}
