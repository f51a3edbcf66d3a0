package drain

// #include "drain.h"
import "C"

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

// cause says in words why the loop has ended; nil if it was told to.
func cause(c *C.mscclpp_drain, reason C.uint32_t) error {
	if reason == C.mscclpp_drain_stopped {
		return nil
	}
	fst, snd := uint64(c.fst), uint64(c.snd)
	if reason == C.mscclpp_drain_cut_short {
		return fmt.Errorf("%w: stopped at trigger %d, before everything that was pushed had been performed", framework.ErrClosed, uint64(c.position))
	}
	return fmt.Errorf("trigger %d (%#x %#x): %w: %s", uint64(c.position), fst, snd, framework.ErrInvalid, mistake(c, reason, fst, snd))
}

func mistake(c *C.mscclpp_drain, reason C.uint32_t, fst, snd uint64) string {
	bytes, source, target := fst&0xffffffff, fst>>32, snd&0xffffffff
	from, to := snd>>32&0x1ff, snd>>41&0x1ff
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
		return fmt.Sprintf("semaphore %d is not bound", snd>>53&0x3ff)
	}
	return fmt.Sprintf("unknown reason %d", uint32(reason))
}
