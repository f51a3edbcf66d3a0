package dsl

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// fuse merges neighbors from the left: the result of a merge is tried with the next operation again.
func fuse(ops []*op) []*op {
	var out []*op
	for i := 0; i < len(ops); {
		cur := ops[i]
		if cur.kind == kPipeline {
			cur.body = fuse(cur.body)
		}
		i++
		for i < len(ops) {
			both := merge(cur, ops[i])
			if both == nil {
				break
			}
			cur = both
			i++
		}
		out = append(out, cur)
	}
	return out
}

// merge returns one operation for two, or nil. Where it returns nil, it may drop a join that the other one does.
func merge(cur, next *op) *op {
	switch {
	case cur.kind == kNop || cur.kind == kBarrier || cur.kind == kPipeline:
		return mergeJoin(cur, next)
	case cur.syncs():
		return mergeSync(cur, next)
	case cur.kind == kGet || cur.kind == kPut:
		return mergeTransfers(cur, next)
	case cur.kind == kReduce:
		return mergeReduction(cur, next)
	case cur.kind == kLoadReduce && next.kind == kStore:
		return mergeSwitch(cur, next)
	}
	return nil
}

func mergeJoin(cur, next *op) *op {
	joined := cur.joins() || cur.after()
	switch {
	case cur.kind == kNop && (next.joins() || next.kind == kPipeline && next.before()):
		return next
	case joined && next.kind == kNop:
		return cur
	case joined && next.syncs():
		next.sync &^= Before
	}
	return nil
}

func mergeSync(cur, next *op) *op {
	if cur.kind == next.kind && cur.name == next.name && cur.channel == next.channel {
		signals := cur.kind == kSignal || cur.kind == kWait // one channel twice has to stay two operations
		if !signals || !slices.ContainsFunc(next.ids, func(id int) bool { return slices.Contains(cur.ids, id) }) {
			return with(cur, func(o *op) { o.ids = slices.Concat(cur.ids, next.ids); o.sync |= next.sync })
		}
	}
	if next.before() || next.joins() {
		cur.sync &^= After
	}
	return nil
}

func with(o *op, change func(*op)) *op {
	c := *o
	change(&c)
	return &c
}

func mergeTransfers(cur, next *op) *op {
	if cur.name != next.name || cur.channel != next.channel || !sameShare(cur, next) {
		return nil
	}
	joined := with(cur, func(o *op) {
		o.dst = slices.Concat(cur.dst, next.dst)
		o.rdst = slices.Concat(cur.rdst, next.rdst)
		o.ids = slices.Concat(cur.ids, next.ids)
	})
	if cur.name == schema.ReadPutPkt {
		if !slices.Equal(cur.src, next.src) {
			return nil
		}
		return joined
	}
	if firstSize(cur) != firstSize(next) {
		return nil
	}
	joined.src = slices.Concat(cur.src, next.src)
	joined.rsrc = slices.Concat(cur.rsrc, next.rsrc)
	return joined
}

func firstSize(o *op) int {
	if o.kind == kGet {
		return o.rsrc[0].size
	}
	return o.src[0].size
}

func sameShare(a, b *op) bool {
	if a.share == nil || b.share == nil {
		return a.share == b.share
	}
	return *a.share == *b.share
}

func mergeReduction(cur, next *op) *op {
	if !sameShare(cur, next) {
		return nil
	}
	result := cur.dst[0]
	var both *op
	switch next.kind {
	case kReduce:
		if cur.name == next.name && (cur.name == schema.Re || cur.name == schema.ReducePkt || cur.name == schema.Rre) && cur.src[0] == next.src[0] &&
			slices.Equal(cur.dst, next.dst) && cur.reduce == next.reduce {
			both = with(cur, func(o *op) {
				o.src = slices.Concat(cur.src, next.src[1:])
				o.rsrc = slices.Concat(cur.rsrc, next.rsrc)
			})
		}
	case kPut:
		if next.channel != schema.Memory {
			return nil
		}
		sends := next.name == schema.Put && !cur.packets || next.name == schema.PutPkt && cur.packets
		forwards := next.name == schema.ReadPutPkt && len(cur.packet) > 0 && next.src[0] == cur.packet[0]
		if sends && next.src[0] == result || forwards {
			both = with(cur, func(o *op) {
				o.rdst = slices.Concat(cur.rdst, next.rdst)
				o.channel = schema.Memory
			})
		}
	case kCopy:
		if cur.name == schema.ReducePkt && next.name == schema.CopyPkt && next.src[0] == result {
			both = with(cur, func(o *op) { o.packet = next.dst })
		}
	}
	if both != nil {
		both.name = reduction(both)
	}
	return both
}

func mergeSwitch(cur, next *op) *op {
	if next.name != schema.GroupStore || cur.rsrc[0].id != next.rdst[0].id || cur.dst[0] != next.src[0] {
		return nil
	}
	return with(cur, func(o *op) {
		o.kind, o.name, o.ids, o.dst = kLoadReduceStore, schema.GroupReduceStore, nil, nil
		o.rdst = next.rdst
	})
}
