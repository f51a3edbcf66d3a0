package schema

// The functions of this file read the objects of a plan. The position of a key in its list is the case of its value.

var planKeys = keys{"!name", "!collective", "!protocol", "!inplace", "reuse_resources", "!gpus", "num_threads_per_block",
	"use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size", "version"}

func (s *scanner) plan(p *Plan) error {
	var version int
	_, err := s.object(planKeys, func(key int) error {
		switch key {
		case 0:
			return take(&p.Name, s.text)
		case 1:
			return take(&p.Collective, s.text)
		case 2:
			return word(s, &p.Protocol, "protocol", Simple, LL)
		case 3:
			return take(&p.InPlace, s.truth)
		case 4:
			return take(&p.ReuseResources, s.truth)
		case 5:
			return objects(s, &p.GPUs, s.limits.Ranks, s.gpu)
		case 6:
			return s.whole(&p.ThreadsPerBlock, 1, MaxThreads)
		case 7:
			return take(&p.DoubleScratch, s.truth)
		case 8:
			return s.whole(&p.Alignment, 1, maxNumber)
		case 9:
			return take(&p.MinSize, s.size)
		case 10:
			return take(&p.MaxSize, s.size)
		default:
			return s.whole(&version, 1, Version)
		}
	})
	return err
}

// whole reads a number within a range.
func (s *scanner) whole(to *int, least, most int64) error {
	n, err := s.number(least, most)
	*to = n
	return err
}

var gpuKeys = keys{"!id", "!input_chunks", "!output_chunks", "!scratch_chunks", "!threadblocks", "channels", "remote_buffers", "semaphores"}

func (s *scanner) gpu(g *GPU) error {
	_, err := s.object(gpuKeys, func(key int) error {
		switch key {
		case 0:
			return s.count(&g.ID, maxNumber)
		case 1:
			return s.count(&g.InputChunks, s.limits.Chunks)
		case 2:
			return s.count(&g.OutputChunks, s.limits.Chunks)
		case 3:
			return s.count(&g.ScratchChunks, s.limits.Chunks)
		case 4:
			return objects(s, &g.Blocks, s.limits.Blocks, s.block)
		case 5:
			return objects(s, &g.Channels, s.limits.List, s.channels)
		case 6:
			return objects(s, &g.RemoteBuffers, s.limits.List, s.remoteBuffer)
		default:
			return objects(s, &g.Semaphores, s.limits.List, s.semaphore)
		}
	})
	return err
}

var channelsKeys = keys{"!channel_type", "connected_to", "buffer_type", "rank_groups", "buff"}

// channels reads an entry of a rank's channels. Older files say buff for buffer_type.
func (s *scanner) channels(c *Channels) error {
	start := s.pos
	seen, err := s.object(channelsKeys, func(key int) error {
		switch key {
		case 0:
			return word(s, &c.Type, "type of channel", Memory, Port, Switch)
		case 1:
			return s.numbers(&c.Peers)
		case 2, 4:
			return s.buffer(&c.Buffer)
		default:
			return objects(s, &c.Groups, s.limits.List, s.rankGroup)
		}
	})
	if err != nil {
		return err
	}
	switch group := seen & 0b11100; {
	case c.Type == Switch && (group&0b01000 == 0 || group&0b10100 == 0 || seen&0b10 != 0):
		return s.fail(start, "a switch channel has buffer_type and rank_groups, and no connected_to")
	case c.Type == Switch && group == 0b11100:
		return s.fail(start, "buffer_type and its older name buff are both there")
	case c.Type != Switch && (seen&0b10 == 0 || group != 0):
		return s.fail(start, "a %s channel has connected_to, and neither buffer_type nor rank_groups", c.Type)
	}
	return nil
}

func (s *scanner) rankGroup(g *RankGroup) error {
	_, err := s.object(keys{"!size", "!ranks"}, func(key int) error {
		if key == 0 {
			return s.count(&g.Size, maxNumber)
		}
		return s.numbers(&g.Ranks)
	})
	return err
}

func (s *scanner) remoteBuffer(b *RemoteBuffer) error {
	_, err := s.object(keys{"!rank", "!type", "!access_channel_types"}, func(key int) error {
		switch key {
		case 0:
			return s.count(&b.Rank, maxNumber)
		case 1:
			return s.buffer(&b.Type)
		default:
			return s.list(s.limits.List, func() error {
				var t ChannelType
				err := word(s, &t, "type of channel", Memory, Port)
				b.Access = append(b.Access, t)
				return err
			})
		}
	})
	return err
}

func (s *scanner) semaphore(x *Semaphore) error {
	_, err := s.object(keys{"!init_value"}, func(int) error { return s.count(&x.Init, maxNumber) })
	return err
}

func (s *scanner) block(b *Block) error {
	_, err := s.object(keys{"!id", "!ops", "channels", "remote_buffer_refs"}, func(key int) error {
		switch key {
		case 0:
			return s.count(&b.ID, maxNumber)
		case 1:
			return objects(s, &b.Ops, s.limits.Ops, func(o *Op) error { return s.op(o, false) })
		case 2:
			return objects(s, &b.Channels, s.limits.List, s.channelRefs)
		default:
			return objects(s, &b.RemoteRefs, s.limits.List, s.remoteRefs)
		}
	})
	return err
}

// channelRefs reads channels of a block. Some files have a key buff here too, which means nothing.
func (s *scanner) channelRefs(c *ChannelRefs) error {
	_, err := s.object(keys{"!channel_type", "!channel_ids", "buff", "buffer_type"}, func(key int) error {
		switch key {
		case 0:
			return word(s, &c.Type, "type of channel", Memory, Port, Switch)
		case 1:
			return s.numbers(&c.IDs)
		default:
			var ignored Buffer
			return s.buffer(&ignored)
		}
	})
	return err
}

func (s *scanner) remoteRefs(c *RemoteRefs) error {
	_, err := s.object(keys{"!access_channel_type", "!remote_buffer_ids"}, func(key int) error {
		if key == 0 {
			return word(s, &c.Type, "type of channel", Memory, Port)
		}
		return s.numbers(&c.IDs)
	})
	return err
}

func (s *scanner) buffer(b *Buffer) error {
	return word(s, b, "type of buffer", Input, Output, Scratch)
}
