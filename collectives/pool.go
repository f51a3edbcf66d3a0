package collectives

import (
	"sync"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// calls are structures for calls that nobody uses now: a call allocates none. One is enough, unless calls are made
// at the same time, or within each other.
type calls struct {
	first  atomic.Pointer[engine.Call]
	mu     sync.Mutex
	others []*engine.Call
	chosen func(Collective, kernel.DataType) []*engine.Algorithm // for all of them
}

func (s *calls) take() *engine.Call {
	if call := s.first.Swap(nil); call != nil {
		return call
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.others); n > 0 {
		call := s.others[n-1]
		s.others = s.others[:n-1]
		return call
	}
	return &engine.Call{Chosen: s.chosen}
}

// give takes one back. It must not keep the caller's buffers.
func (s *calls) give(call *engine.Call) {
	call.Input, call.Output = nil, nil
	call.In, call.Out = engine.Buffer{}, engine.Buffer{}
	if s.first.CompareAndSwap(nil, call) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = append(s.others, call)
}
