package bench

// region is a stretch of a rank's correct output and where its data comes from.
type region struct {
	out, n int // in the output, in elements
	from   int // the rank whose input it is; everyone: all reduce to it
	first  int // where it starts in that input
}

const everyone = -1

// expected describes the whole output that the call must leave on a rank.
func (c *Call) expected(rank, ranks int) []region {
	n := c.Count
	switch c.Collective {
	case AllReduce:
		return []region{{0, n, everyone, 0}}
	case Reduce:
		if rank == c.Root {
			return []region{{0, n, everyone, 0}}
		}
	case ReduceScatter:
		return []region{{0, n, everyone, rank * n}}
	case Broadcast:
		return []region{{0, n, c.Root, 0}}
	case Scatter:
		return []region{{0, n, c.Root, rank * n}}
	case SendRecv:
		return []region{{0, n, (rank + ranks - 1) % ranks, 0}}
	case AllGather:
		return fromEach(ranks, n, 0)
	case Gather:
		if rank == c.Root {
			return fromEach(ranks, n, 0)
		}
	case AllToAll:
		return fromEach(ranks, n, rank*n)
	case AllToAllV:
		var all []region
		for r := range ranks {
			theirs := UnevenBlocks(n, ranks, r)
			all = append(all, region{c.V.RecvDispls[r], c.V.RecvCounts[r], r, theirs.SendDispls[rank]})
		}
		return all
	}
	return nil // a rank that receives nothing
}

func fromEach(ranks, n, first int) []region {
	all := make([]region, ranks)
	for r := range all {
		all[r] = region{r * n, n, r, first}
	}
	return all
}
