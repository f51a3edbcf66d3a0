package verbs

import (
	"math"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// performObserved is perform, with records of when it began and ended, and of when the adapter had the requests.
func (p *proxy) performObserved(w *operation, pos uint64) error {
	peer, depth := w.peer(), uint16(min(p.ring.Depth(), math.MaxUint16))
	p.records.Write(observe.Trigger|observe.Begin, pos, w.bytes, depth, peer)
	err := p.post(w)
	if err == nil {
		p.records.Write(observe.Posted|observe.Instant, pos, w.bytes, 0, peer)
		if w.kind&kernel.TriggerFlush != 0 {
			err = p.flush(w, pos) // which may find that it is complete
		}
	}
	p.records.Write(observe.Trigger|observe.End, pos, w.bytes, depth, peer)
	return err
}

// peer is the rank to which a checked trigger leads.
func (w *operation) peer() int {
	if w.dst != nil {
		return w.dst.flow.peer
	}
	return w.s.flow.peer
}
