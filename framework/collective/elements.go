package collective

// BusFactor returns the factor between algorithm bandwidth and bus bandwidth, as in nccl-tests. All-to-all-v has the
// factor of all-to-all; a barrier has none.
func (k Kind) BusFactor(ranks int) float64 {
	if bus := k.traits().bus; bus != nil {
		return bus(float64(ranks))
	}
	return 0
}

// Elements returns how many elements the input and the output of a rank hold. A rank that is not the root has no
// output in Reduce and Gather and no input in Broadcast and Scatter.
func (k Kind) Elements(count, ranks, rank, root int) (in, out int) {
	in, out = count, count
	switch k {
	case AllGather, Gather:
		out = count * ranks
	case ReduceScatter, Scatter:
		in = count * ranks
	case AllToAll, AllToAllV:
		in, out = count*ranks, count*ranks
	}
	if k.Rooted() && rank != root {
		switch k {
		case Reduce, Gather:
			out = 0
		case Broadcast, Scatter:
			in = 0
		}
	}
	return in, out
}

// SharedAt returns where input and output start, in elements, in the single buffer of an in-place call.
func (k Kind) SharedAt(count, rank, root int) (in, out int) {
	switch {
	case k == AllGather, k == Gather && rank == root:
		return rank * count, 0
	case k == ReduceScatter, k == Scatter && rank == root:
		return 0, rank * count
	}
	return 0, 0
}
