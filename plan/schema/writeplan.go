package schema

// The functions of this file write the objects of a plan, with their keys in the order of MSCCL++.

func (w *writer) plan(p *Plan) {
	w.open('{')
	w.str("name", p.Name)
	w.str("collective", p.Collective)
	w.str("protocol", string(p.Protocol))
	w.flag("inplace", p.InPlace)
	w.flag("reuse_resources", p.ReuseResources)
	each(w, "gpus", p.GPUs, w.gpu)
	w.num("num_threads_per_block", p.ThreadsPerBlock)
	w.flag("use_double_scratch_buffer", p.DoubleScratch)
	w.num("buffer_alignment", p.Alignment)
	w.size("min_message_size", p.MinSize)
	w.size("max_message_size", p.MaxSize)
	w.end('}')
}

func (w *writer) gpu(g *GPU) {
	w.num("id", g.ID)
	w.num("input_chunks", g.InputChunks)
	w.num("output_chunks", g.OutputChunks)
	w.num("scratch_chunks", g.ScratchChunks)
	each(w, "threadblocks", g.Blocks, func(b *Block) { w.block(g, b) })
	each(w, "channels", g.Channels, w.channels)
	each(w, "remote_buffers", g.RemoteBuffers, w.remoteBuffer)
	each(w, "semaphores", g.Semaphores, func(s *Semaphore) { w.num("init_value", s.Init) })
}

func (w *writer) channels(c *Channels) {
	w.str("channel_type", string(c.Type))
	if c.Type != Switch {
		w.nums("connected_to", c.Peers)
		return
	}
	w.str("buffer_type", string(c.Buffer))
	each(w, "rank_groups", c.Groups, func(g *RankGroup) {
		w.num("size", g.Size)
		w.nums("ranks", g.Ranks)
	})
}

func (w *writer) remoteBuffer(b *RemoteBuffer) {
	w.num("rank", b.Rank)
	w.str("type", string(b.Type))
	w.key("access_channel_types")
	w.open('[')
	for _, t := range b.Access {
		w.item()
		w.text(string(t))
	}
	w.end(']')
}

func (w *writer) block(g *GPU, b *Block) {
	w.num("id", b.ID)
	each(w, "ops", b.Ops, func(o *Op) { w.op(g, o) })
	each(w, "channels", b.Channels, func(c *ChannelRefs) {
		w.str("channel_type", string(c.Type))
		w.nums("channel_ids", c.IDs)
	})
	each(w, "remote_buffer_refs", b.RemoteRefs, func(c *RemoteRefs) {
		w.str("access_channel_type", string(c.Type))
		w.nums("remote_buffer_ids", c.IDs)
	})
}

func (w *writer) op(g *GPU, o *Op) {
	w.str("name", string(o.Name))
	if l := o.Load; l != nil {
		w.groupLoad(l)
	}
	if o.Name.Data() && o.Load == nil {
		each(w, "src_buff", o.Src, func(x *Operand) { w.operand(g, o, x) })
		each(w, "dst_buff", o.Dst, func(x *Operand) { w.operand(g, nil, x) })
	}
	if len(o.ChannelIDs) > 0 {
		w.nums("channel_ids", o.ChannelIDs)
	}
	if o.ChannelType != "" {
		w.str("channel_type", string(o.ChannelType))
	}
	if o.Name.Reduces() {
		w.str("reduce_op", string(o.Reduce))
	}
	if o.Group != nil {
		w.key("tbg_info")
		w.open('{')
		w.num("tb_id", o.Group.ID)
		w.num("tbg_size", o.Group.Size)
		w.end('}')
	}
	w.rest(g, o)
}

// rest writes the fields of operations without operands.
func (w *writer) rest(g *GPU, o *Op) {
	switch o.Name {
	case Barrier:
		w.num("barrier_id", o.Barrier)
		w.num("num_threadblocks", o.Blocks)
	case SemAcquire, SemRelease:
		w.nums("semaphore_ids", o.Semaphores)
	case Pipeline:
		w.key("iter_context")
		w.open('{')
		if o.Iter != nil {
			w.num("unit_size", o.Iter.Unit)
			w.num("num_chunks", o.Iter.NumChunks)
		}
		w.end('}')
		each(w, "ops", o.Ops, func(x *Op) { w.op(g, x) })
	}
}

func (w *writer) groupLoad(l *GroupLoad) {
	w.str("buffer_type", string(l.Buffer))
	w.num("buffer_offset", l.Offset)
	w.num("size", l.Size)
	w.key("dst_chunk")
	w.open('{')
	w.num("rank", l.Dst.Rank)
	w.str("type", string(l.Dst.Buffer))
	w.num("index", l.Dst.Index)
	w.num("size", l.Dst.Size)
	w.end('}')
}

// operand writes a range of chunks. Sources of group stores name their rank too: owner is their operation.
func (w *writer) operand(g *GPU, owner *Op, x *Operand) {
	switch x.Kind {
	case Remote:
		w.num("buffer_id", x.ID)
	case Multicast:
		w.num("switch_channel_id", x.ID)
	default:
		if owner != nil && (owner.Name == GroupStore || owner.Name == GroupStorePkt) {
			w.num("rank", g.ID)
		}
		w.str("type", string(x.Buffer))
	}
	w.num("index", x.Index)
	w.num("size", x.Size)
}
