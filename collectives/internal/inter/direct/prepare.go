package direct

import (
	"context"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// prepare loads what calls of a collective need, with elements of a type where it reduces;
// for messages, SendRecv stands for all.
func (d *Engine) prepare(k collective.Kind, typ kernel.DataType) error {
	if k.Messages() {
		k = collective.SendRecv
	}
	reduces := k.Reduces()
	if d.loaded[k] && (!reduces || d.sum.For(typ) != nil) {
		return nil
	}
	inside := map[collective.Kind][]collective.Kind{
		collective.AllReduce: {collective.ReduceScatter, collective.AllGather}, collective.ReduceScatter: {collective.ReduceScatter}, collective.AllGather: {collective.AllGather}, collective.Barrier: {collective.Barrier},
		collective.Broadcast: {collective.Broadcast, collective.AllGather}, collective.Reduce: {collective.ReduceScatter, collective.AllGather}, collective.AllToAll: {collective.AllToAll}, // for every root
		collective.SendRecv: {collective.SendRecv},
	}
	for _, part := range inside[k] {
		if err := d.queue.Inside.Prepare(part, typ); err != nil {
			return err
		}
	}
	if reduces && d.sum.For(typ) == nil {
		ctx, cancel := context.WithTimeout(context.Background(), engine.PreparePatience)
		defer cancel()
		if _, err := d.sum.Load(ctx, d.queue.World, typ); err != nil {
			return err
		}
	}
	d.loaded[k] = true
	return nil
}
