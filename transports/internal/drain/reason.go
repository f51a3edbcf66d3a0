package drain

// #include "drain.h"
import "C"

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// cause says in words why the loop has ended; nil if that was asked for.
func cause(c *C.mscclpp_drain, reason C.uint32_t) error {
	if reason == C.mscclpp_drain_stopped {
		return nil
	}
	t := kernel.Trigger{Fst: uint64(c.fst), Snd: uint64(c.snd)}
	if reason == C.mscclpp_drain_cut_short {
		return fmt.Errorf("%w: stopped at trigger %d, before everything that was pushed had been performed", framework.ErrClosed, uint64(c.position))
	}
	return fmt.Errorf("trigger %d (%#x %#x): %w: %s", uint64(c.position), t.Fst, t.Snd, framework.ErrInvalid, mistake(c, reason, t))
}

func mistake(c *C.mscclpp_drain, reason C.uint32_t, t kernel.Trigger) string {
	bytes, source, target := t.Bytes(), t.From(), t.To()
	from, to := t.Src(), t.Dst()
	switch reason {
	case C.mscclpp_drain_bad_type:
		return "asks for nothing: expected a put, a signal or a flush"
	case C.mscclpp_drain_unbound_source:
		return fmt.Sprintf("source memory %d is not bound", from)
	case C.mscclpp_drain_unbound_target:
		return fmt.Sprintf("target memory %d is not bound", to)
	case C.mscclpp_drain_source_range:
		return fmt.Sprintf("%d bytes at %d of source memory %d, which has %d", bytes, source, from, uint64(c.memory[from].bytes))
	case C.mscclpp_drain_target_range:
		return fmt.Sprintf("%d bytes at %d of target memory %d, which has %d", bytes, target, to, uint64(c.memory[to].bytes))
	case C.mscclpp_drain_source_is_peers:
		return fmt.Sprintf("source memory %d is a peer's: expected own memory", from)
	case C.mscclpp_drain_target_is_own:
		return fmt.Sprintf("target memory %d is own memory: expected a peer's", to)
	case C.mscclpp_drain_unbound_semaphore:
		return fmt.Sprintf("semaphore %d is not bound", t.Slot())
	}
	return fmt.Sprintf("unknown reason %d", uint32(reason))
}
