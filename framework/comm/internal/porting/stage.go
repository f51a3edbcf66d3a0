package porting

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/memory"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

// A transport in a process of its own reaches what has a descriptor. Puts that read from other
// memory of this process go through memory that has one: the bytes are copied there before the
// trigger that cites them is pushed, so that everything behind the trigger is as it always is. The
// destination of puts cannot be staged: the peer's signal would say that data is there when it
// still had to be copied, and nobody here would know (docs/decisions/0010).

// newStage makes a stage for puts from memory of so many bytes, and registers it.
func (s *Ports) newStage(ctx context.Context, t *transport.Transport, bytes uint64) (*stage, framework.Registration, error) {
	part := stageUnit * max(1, min((bytes+stageUnit-1)/stageUnit, stagePart/stageUnit))
	inner, err := s.Counters.Dev.Alloc(stageParts * part)
	if err != nil {
		return nil, framework.Registration{}, fmt.Errorf("stage: %w", err)
	}
	made := &stage{memory: memory.New(inner, true), part: part, turn: make(chan struct{}, 1)}
	reg, err := memory.Registration(ctx, made.memory, t, s.Counters.Dev.Info().Device)
	if err != nil {
		return nil, reg, errors.Join(fmt.Errorf("stage: %w", err), inner.Close())
	}
	return made, reg, nil
}

func (s *stage) close(ctx context.Context) error { return memory.Shut(ctx, s.memory) }

// apart reports whether this process can read memory that no other process can be given.
func (s *Ports) apart(m *memory.Memory) bool {
	if s.Counters.HostDev != nil {
		return false // its copy engines, or the collectives, do that
	}
	shares, err := m.Export()
	if err != nil {
		return false
	}
	defer framework.Parcel{Shares: shares}.Close()
	for _, share := range shares {
		if share.Kind.HasFD() {
			return false
		}
	}
	return true
}

// target says of what puts of the peer cannot write what can be used in its place.
func (s *Ports) target(m *memory.Memory, t *transport.Transport, err error) error {
	if !errors.Is(err, framework.ErrUnsupported) || !s.apart(m) {
		return err
	}
	return fmt.Errorf("%w; over %s puts of the peer cannot write memory without a descriptor: expected memory from Alloc, or behind a sealed memfd, which the peer writes and this rank copies from behind its Wait. Embedded adapters, and sockets that the rank drives, write any memory. What puts read may be any", err, t.Name)
}
