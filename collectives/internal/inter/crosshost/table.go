package crosshost

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Table calls add for the rows of the algorithms in two levels, in the order in which they are tried, with what tells
// which calls an algorithm takes.
func (z *Sizes) Table(add func(row engine.Row, fits func(*engine.Request) bool)) {
	small := min(mostSmall, z.Slot)
	both := func(k collective.Kind, fewer uint64) {
		for _, row := range []engine.Row{{Collective: k, Algorithm: NameSmall, MaxBytes: fewer}, {Collective: k, Algorithm: NameLarge}} {
			most := row.MaxBytes
			if k == collective.AllToAll { // works in pieces
				most = 0
			}
			add(row, func(r *engine.Request) bool {
				return (most == 0 || r.Bytes <= most) && (!k.Reduces() || Partial(r.Type, r.Op))
			})
		}
	}
	both(collective.AllToAll, z.bundled())
	add(engine.Row{Collective: collective.Barrier, Algorithm: NameSmall}, nil)
	for _, k := range []collective.Kind{collective.AllReduce, collective.AllGather, collective.ReduceScatter, collective.Broadcast, collective.Reduce} {
		both(k, small)
	}
}
