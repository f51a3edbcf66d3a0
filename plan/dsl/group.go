package dsl

// Group is a set of thread blocks that share every operation given to it: each does its slice of the operands.
type Group struct {
	blocks   []int
	position map[int]int
}

// Group makes a group of thread blocks; their order is the order of the slices.
func (p *Program) Group(blocks ...int) *Group {
	g := &Group{blocks: append([]int(nil), blocks...), position: map[int]int{}}
	for i, b := range blocks {
		if _, twice := g.position[b]; twice {
			p.fail(ValueError, "Duplicate thread block found at index %d: %d", i, b)
		}
		g.position[b] = i
	}
	return g
}

// On says which thread blocks do an operation.
type On struct {
	block int
	one   bool
	group *Group
}

// Block has one thread block do an operation.
func Block(block int) On { return On{block: block, one: true} }

// Blocks has a group of thread blocks do an operation, each its slice.
func Blocks(group *Group) On { return On{group: group} }

// Slice has one thread block of a group do its slice of an operation.
func Slice(group *Group, block int) On { return On{block: block, one: true, group: group} }

// share is what one thread block does of an operation of a group.
type share struct{ id, of int }

// each calls f for every block that does an operation. kind is the kind of the mistake if none is named.
func (p *Program) each(on On, kind Kind, f func(block int, s *share)) {
	blocks := []int{on.block}
	switch {
	case on.one:
	case on.group != nil:
		blocks = on.group.blocks
	default:
		p.fail(kind, "Either 'tb' (thread block ID) or 'tb_group' (ThreadBlockGroup) must be provided, but both are None.")
		return
	}
	for _, b := range blocks {
		if !p.legal(b) {
			return
		}
		var s *share
		if on.group != nil {
			id, in := on.group.position[b]
			if !in {
				p.fail(ValueError, "Thread block %d not found in thread block group", b)
				return
			}
			s = &share{id, len(on.group.blocks)}
		}
		f(b, s)
	}
}
