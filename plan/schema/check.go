package schema

import (
	"fmt"
	"slices"
)

// Check says what is wrong with a plan: everything that can be said without running it, in an *Error with the path of
// the first mistake. Programs that make plans call it; readers have.
func (p *Plan) Check() error {
	c := &checker{plan: p}
	for _, step := range []func() error{c.top, c.ranks, c.groups, c.blocks, c.barriers} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checker walks over a plan. rank and block say where it is.
type checker struct {
	plan  *Plan
	gpu   *GPU
	block *Block

	switches []SwitchChannel // of the rank
	peers    map[ChannelType][]int
	channels map[ChannelType][]int // of the block
	remotes  map[ChannelType][]int // of the block
}

func wrong(path, format string, args ...any) error {
	return &Error{Path: path, Problem: fmt.Sprintf(format, args...)}
}

func (c *checker) top() error {
	p := c.plan
	switch {
	case p.Name == "":
		return wrong("name", "the plan has no name")
	case p.Collective == "":
		return wrong("collective", "the plan names no collective")
	case p.Protocol != Simple && p.Protocol != LL:
		return wrong("protocol", "unknown protocol %q: expected %s or %s", p.Protocol, Simple, LL)
	case len(p.GPUs) == 0:
		return wrong("gpus", "the plan has no ranks")
	case p.ThreadsPerBlock < 1 || p.ThreadsPerBlock > MaxThreads:
		return wrong("num_threads_per_block", "%d threads in a block: expected 1 to %d", p.ThreadsPerBlock, MaxThreads)
	case p.Alignment < 1:
		return wrong("buffer_alignment", "an alignment of %d bytes: expected at least 1", p.Alignment)
	case p.MinSize > p.MaxSize:
		return wrong("min_message_size", "the smallest size, %d, is above the largest, %d", p.MinSize, p.MaxSize)
	}
	return nil
}

func (c *checker) ranks() error {
	for r := range c.plan.GPUs {
		g := &c.plan.GPUs[r]
		path := fmt.Sprintf("gpus[%d]", r)
		if g.ID != r {
			return wrong(path+".id", "id %d at position %d: ranks stand in order", g.ID, r)
		}
		if g.InputChunks < 0 || g.OutputChunks < 0 || g.ScratchChunks < 0 {
			return wrong(path, "rank %d has a negative number of chunks", r)
		}
		for i := range g.Channels {
			if err := c.rankChannels(fmt.Sprintf("%s.channels[%d]", path, i), g, &g.Channels[i]); err != nil {
				return err
			}
		}
		for i := range g.RemoteBuffers {
			if err := c.remoteBuffer(fmt.Sprintf("%s.remote_buffers[%d]", path, i), g, &g.RemoteBuffers[i]); err != nil {
				return err
			}
		}
		for i, s := range g.Semaphores {
			if s.Init < 0 {
				return wrong(fmt.Sprintf("%s.semaphores[%d]", path, i), "rank %d: the initial value %d is negative", r, s.Init)
			}
		}
	}
	return nil
}

func (c *checker) rankChannels(path string, g *GPU, x *Channels) error {
	n := len(c.plan.GPUs)
	switch x.Type {
	case Memory, Port:
		for i, peer := range x.Peers {
			if peer < 0 || peer >= n {
				return wrong(fmt.Sprintf("%s.connected_to[%d]", path, i), "rank %d: a %s channel to rank %d of %d", g.ID, x.Type, peer, n)
			}
		}
		return nil
	case Switch:
	default:
		return wrong(path+".channel_type", "rank %d: unknown type of channel %q", g.ID, x.Type)
	}
	if !known(x.Buffer) {
		return wrong(path+".buffer_type", "rank %d: unknown type of buffer %q", g.ID, x.Buffer)
	}
	for i, group := range x.Groups {
		at := fmt.Sprintf("%s.rank_groups[%d]", path, i)
		if group.Size != len(group.Ranks) {
			return wrong(at+".size", "rank %d: a group of size %d has %d ranks", g.ID, group.Size, len(group.Ranks))
		}
		for k, rank := range group.Ranks {
			if rank < 0 || rank >= n {
				return wrong(fmt.Sprintf("%s.ranks[%d]", at, k), "rank %d: a switch channel to rank %d of %d", g.ID, rank, n)
			}
			if slices.Contains(group.Ranks[:k], rank) {
				return wrong(fmt.Sprintf("%s.ranks[%d]", at, k), "rank %d: rank %d is twice in the group of a switch channel", g.ID, rank)
			}
		}
		if !slices.Contains(group.Ranks, g.ID) {
			return wrong(at+".ranks", "rank %d has a switch channel of a group without it", g.ID)
		}
	}
	return nil
}

// groups checks that all members of a group have equally many switch channels of it: they make them together.
func (c *checker) groups() error {
	names := make([][]string, len(c.plan.GPUs))
	counts := make([]map[string]int, len(c.plan.GPUs))
	for r := range c.plan.GPUs {
		counts[r] = map[string]int{}
		for _, x := range c.plan.GPUs[r].Switches() {
			name := fmt.Sprintf("ranks %v on buffer %s", slices.Sorted(slices.Values(x.Ranks)), x.Buffer)
			names[r] = append(names[r], name)
			counts[r][name]++
		}
	}
	for r := range c.plan.GPUs {
		for i, x := range c.plan.GPUs[r].Switches() {
			for _, member := range x.Ranks {
				if mine, its := counts[r][names[r][i]], counts[member][names[r][i]]; mine != its {
					return wrong(fmt.Sprintf("gpus[%d].channels", r), "rank %d has %d switch channels of %s, and rank %d has %d", r, mine, names[r][i], member, its)
				}
			}
		}
	}
	return nil
}

func known(b Buffer) bool { return b == Input || b == Output || b == Scratch }

func (c *checker) remoteBuffer(path string, g *GPU, b *RemoteBuffer) error {
	if n := len(c.plan.GPUs); b.Rank < 0 || b.Rank >= n {
		return wrong(path+".rank", "rank %d: a buffer of rank %d of %d", g.ID, b.Rank, n)
	}
	if !known(b.Type) {
		return wrong(path+".type", "rank %d: unknown type of buffer %q", g.ID, b.Type)
	}
	for i, t := range b.Access {
		if t != Memory && t != Port {
			return wrong(fmt.Sprintf("%s.access_channel_types[%d]", path, i), "rank %d: a remote buffer is accessed over memory or port channels, not over %q", g.ID, t)
		}
	}
	return nil
}

func (c *checker) blocks() error {
	for r := range c.plan.GPUs {
		c.gpu = &c.plan.GPUs[r]
		c.switches = c.gpu.Switches()
		c.peers = map[ChannelType][]int{Memory: c.gpu.Peers(Memory), Port: c.gpu.Peers(Port), Switch: make([]int, len(c.switches))}
		for b := range c.gpu.Blocks {
			c.block = &c.gpu.Blocks[b]
			path := fmt.Sprintf("gpus[%d].threadblocks[%d]", r, b)
			if c.block.ID != b {
				return wrong(path+".id", "rank %d: id %d at position %d: blocks stand in order", r, c.block.ID, b)
			}
			if err := c.tables(path); err != nil {
				return err
			}
			if err := c.ops(path+".ops", c.block.Ops, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// tables checks the block's lists of channels and remote buffers, which lead to those of the rank.
func (c *checker) tables(path string) error {
	for i, x := range c.block.Channels {
		all, ok := c.peers[x.Type]
		if !ok {
			return wrong(fmt.Sprintf("%s.channels[%d].channel_type", path, i), "%s: unknown type of channel %q", c.place(), x.Type)
		}
		for k, id := range x.IDs {
			if id < 0 || id >= len(all) {
				return wrong(fmt.Sprintf("%s.channels[%d].channel_ids[%d]", path, i, k), "%s: %s channel %d of %d of the rank", c.place(), x.Type, id, len(all))
			}
		}
	}
	for i, x := range c.block.RemoteRefs {
		for k, id := range x.IDs {
			at := fmt.Sprintf("%s.remote_buffer_refs[%d].remote_buffer_ids[%d]", path, i, k)
			if n := len(c.gpu.RemoteBuffers); id < 0 || id >= n {
				return wrong(at, "%s: remote buffer %d of %d of the rank", c.place(), id, n)
			}
			if !slices.Contains(c.gpu.RemoteBuffers[id].Access, x.Type) {
				return wrong(at, "%s: remote buffer %d of the rank is not accessed over %q channels", c.place(), id, x.Type)
			}
		}
	}
	c.channels, c.remotes = map[ChannelType][]int{}, map[ChannelType][]int{}
	for _, t := range []ChannelType{Memory, Port, Switch} {
		c.channels[t], c.remotes[t] = c.block.ChannelIDs(t), c.block.RemoteIDs(t)
	}
	return nil
}

// place names the block that is looked at.
func (c *checker) place() string { return fmt.Sprintf("rank %d, block %d", c.gpu.ID, c.block.ID) }

// barriers checks that as many blocks name a barrier as the barrier waits for.
func (c *checker) barriers() error {
	type use struct {
		blocks map[int]bool
		want   int
		path   string
	}
	for r := range c.plan.GPUs {
		uses := map[int]*use{}
		var order []int
		for b := range c.plan.GPUs[r].Blocks {
			err := visit(fmt.Sprintf("gpus[%d].threadblocks[%d].ops", r, b), c.plan.GPUs[r].Blocks[b].Ops, func(list string, i int, o *Op) error {
				if o.Name != Barrier {
					return nil
				}
				path := fmt.Sprintf("%s[%d]", list, i)
				u := uses[o.Barrier]
				if u == nil {
					u = &use{map[int]bool{}, o.Blocks, path}
					uses[o.Barrier], order = u, append(order, o.Barrier)
				}
				if u.want != o.Blocks {
					return wrong(path+".num_threadblocks", "rank %d: barrier %d is for %d blocks here, and for %d blocks at %s", r, o.Barrier, o.Blocks, u.want, u.path)
				}
				u.blocks[b] = true
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, id := range order {
			if u := uses[id]; u.want != len(u.blocks) {
				return wrong(u.path, "rank %d: barrier %d waits for %d blocks, and %d take part", r, id, u.want, len(u.blocks))
			}
		}
	}
	return nil
}

// visit calls look for every operation, those of pipelines included: the i-th one of the list with a path.
func visit(list string, ops []Op, look func(list string, i int, o *Op) error) error {
	for i := range ops {
		if err := look(list, i, &ops[i]); err != nil {
			return err
		}
		if len(ops[i].Ops) == 0 {
			continue
		}
		if err := visit(fmt.Sprintf("%s[%d].ops", list, i), ops[i].Ops, look); err != nil {
			return err
		}
	}
	return nil
}
