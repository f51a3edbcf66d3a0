package schema

func (s *scanner) op(o *Op, inner bool) error {
	start := s.pos
	load := &GroupLoad{}
	seen, err := s.object(opKeys, func(key int) error {
		switch key {
		case 0:
			return s.opName(&o.Name)
		case 1:
			return objects(s, &o.Src, s.limits.List, s.operand)
		case 2:
			return objects(s, &o.Dst, s.limits.List, s.operand)
		case 3:
			return s.numbers(&o.ChannelIDs)
		case 4:
			return word(s, &o.ChannelType, "type of channel", Memory, Port, Switch, NoChannel)
		case 5:
			return word(s, &o.Reduce, "reduction", Sum, Min, Max)
		case 6:
			return s.groupSlice(o)
		default:
			return s.moreOp(o, load, key, inner)
		}
	})
	if err != nil {
		return err
	}
	if o.Name == GroupReduce {
		o.Load = load
	}
	if o.Name.Reduces() && o.Reduce == "" {
		o.Reduce = Sum
	}
	return s.fits(o, start, seen)
}

// moreOp reads the fields that few operations have.
func (s *scanner) moreOp(o *Op, load *GroupLoad, key int, inner bool) error {
	switch key {
	case 7:
		return s.count(&o.Barrier, maxNumber)
	case 8:
		return s.count(&o.Blocks, maxNumber)
	case 9:
		return s.numbers(&o.Semaphores)
	case 10:
		o.Iter = &Iteration{}
		_, err := s.object(keys{"!unit_size", "!num_chunks"}, func(key int) error {
			if key == 0 {
				return s.whole(&o.Iter.Unit, 1, 1<<62)
			}
			return s.count(&o.Iter.NumChunks, maxNumber)
		})
		return err
	case 11:
		if inner {
			return s.fail(s.pos, "a pipeline stands within a pipeline")
		}
		return objects(s, &o.Ops, s.limits.Ops, func(x *Op) error { return s.op(x, true) })
	case 12:
		return s.buffer(&load.Buffer)
	case 13:
		return s.count(&load.Offset, maxNumber)
	case 14:
		return s.count(&load.Size, maxNumber)
	default:
		return s.chunk(&load.Dst)
	}
}

func (s *scanner) opName(to *OpName) error {
	start := s.pos
	if s.next() != '"' {
		return s.wrong("a string")
	}
	raw := s.raw()
	for _, name := range announced {
		if string(raw[1:len(raw)-1]) == string(name) {
			return s.fail(start, "the operation %s is announced, and no version of the format has it", name)
		}
	}
	s.pos = start
	return word(s, to, "operation", operations...)
}

func (s *scanner) groupSlice(o *Op) error {
	o.Group = &GroupSlice{}
	_, err := s.object(keys{"!tb_id", "!tbg_size"}, func(key int) error {
		if key == 0 {
			return s.count(&o.Group.ID, maxNumber)
		}
		return s.whole(&o.Group.Size, 1, maxNumber)
	})
	return err
}

func (s *scanner) chunk(c *Chunk) error {
	_, err := s.object(keys{"!rank", "!type", "!index", "!size"}, func(key int) error {
		switch key {
		case 0:
			return s.count(&c.Rank, maxNumber)
		case 1:
			return s.buffer(&c.Buffer)
		case 2:
			return s.count(&c.Index, maxNumber)
		default:
			return s.count(&c.Size, maxNumber)
		}
	})
	return err
}

// operand reads a range of chunks: local, remote or multicast by the key that says in what. The rank of a source of a
// group store is the rank itself.
func (s *scanner) operand(x *Operand) error {
	start := s.pos
	seen, err := s.object(keys{"type", "buffer_id", "switch_channel_id", "!index", "!size", "rank"}, func(key int) error {
		switch key {
		case 0:
			return s.buffer(&x.Buffer)
		case 1:
			x.Kind = Remote
			return s.count(&x.ID, maxNumber)
		case 2:
			x.Kind = Multicast
			return s.count(&x.ID, maxNumber)
		case 3:
			return s.count(&x.Index, maxNumber)
		case 4:
			return s.count(&x.Size, maxNumber)
		default:
			return s.ownRank()
		}
	})
	if err != nil {
		return err
	}
	if where := seen & 0b111; where != 0b001 && where != 0b010 && where != 0b100 {
		return s.fail(start, "an operand has one of type, buffer_id and switch_channel_id")
	}
	if seen&0b100000 != 0 && x.Kind != Local {
		return s.fail(start, "an operand that is not local has no rank")
	}
	return nil
}

// ownRank reads the rank of a local operand, which the path has as the position in gpus.
func (s *scanner) ownRank() error {
	start := s.pos
	var rank int
	if err := s.count(&rank, maxNumber); err != nil {
		return err
	}
	if len(s.path) > 1 && rank != s.path[1].index {
		return s.fail(start, "rank %d of a local operand of rank %d", rank, s.path[1].index)
	}
	return nil
}

// fits says which fields an operation lacks, or has too many.
func (s *scanner) fits(o *Op, start int, seen uint64) error {
	need, may := o.fields()
	if seen &^= 1; o.Channel() == NoChannel {
		seen &^= hasType // the same as an absent one
	}
	for i, key := range opKeys {
		bit := uint64(1) << i
		if need&bit != 0 && seen&bit == 0 {
			return s.fail(start, "operation %s: the key %q is missing", o.Name, key)
		}
		if seen&bit != 0 && (need|may)&bit == 0 {
			return s.fail(start, "operation %s has no key %q", o.Name, key)
		}
	}
	return nil
}
