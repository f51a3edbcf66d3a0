package collectives

// deviceTable is for GPUs whose links carry whole lines, such as NVLink. Sizes are
// those at which one algorithm overtook the next on two and four H200s; more ranks
// send more for the same message, so thresholds of all-reduce shrink.
var deviceTable = []Row{
	{Collective: AllReduce, MaxBytes: 32 << 10, Algorithm: "oneshot_ll8"},
	{Collective: AllReduce, MaxBytes: 512 << 10, MaxRanks: 2, Algorithm: "oneshot_ll128"},
	{Collective: AllReduce, MaxBytes: 256 << 10, MaxRanks: 4, Algorithm: "oneshot_ll128"},
	{Collective: AllReduce, MaxBytes: 64 << 10, MaxRanks: 8, Algorithm: "oneshot_ll128"},
	{Collective: AllReduce, MaxBytes: 2 << 20, Algorithm: "twoshot_ll128"},
	{Collective: AllReduce, MaxBytes: 128 << 20, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllReduce, Registered: &yes, Algorithm: copyName},
	{Collective: AllReduce, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllReduce, MaxBytes: 32 << 10, Algorithm: "allpair_ll8"},
	{Collective: AllReduce, MaxBytes: 512 << 10, Algorithm: "twophase_ll8"},
	{Collective: AllReduce, Algorithm: "twophase_chunk"},

	{Collective: AllGather, MaxBytes: 64 << 10, Algorithm: "direct_ll8"},
	{Collective: AllGather, MaxBytes: 2 << 20, Algorithm: "direct_ll128"},
	{Collective: AllGather, MaxBytes: 32 << 20, Algorithm: "push"},
	{Collective: AllGather, Algorithm: copyName},
	{Collective: AllGather, Algorithm: "push"},
	{Collective: AllGather, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllGather, MaxBytes: 64 << 10, Algorithm: "ll8"},
	{Collective: AllGather, Algorithm: "chunk"},

	{Collective: ReduceScatter, MaxBytes: 64 << 10, Algorithm: "direct_ll8"},
	{Collective: ReduceScatter, MaxBytes: 1 << 20, Algorithm: "direct_ll128"},
	{Collective: ReduceScatter, MaxBytes: 256 << 20, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: ReduceScatter, MaxBytes: 32 << 20, Algorithm: "chunk"},
	{Collective: ReduceScatter, Algorithm: copyName},
	{Collective: ReduceScatter, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: ReduceScatter, Algorithm: "chunk"},

	{Collective: AllToAll, MaxBytes: 64 << 10, Algorithm: "direct_ll8"},
	{Collective: AllToAll, MaxBytes: 2 << 20, Algorithm: "direct_ll128"},
	{Collective: AllToAll, MaxBytes: 32 << 20, Algorithm: "push"},
	{Collective: AllToAll, Algorithm: copyName},
	{Collective: AllToAll, Algorithm: "push"},
	{Collective: AllToAll, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: AllToAll, MaxBytes: 64 << 10, Algorithm: "ll8"},
	{Collective: AllToAll, Algorithm: "chunk"},

	{Collective: Broadcast, MaxBytes: 32 << 10, Algorithm: "direct_ll8"},
	{Collective: Broadcast, MaxBytes: 1 << 20, Algorithm: "direct_ll128"},
	{Collective: Broadcast, Algorithm: "push"},
	{Collective: Broadcast, Algorithm: "chunk"},

	{Collective: Reduce, MaxBytes: 32 << 10, Algorithm: "direct_ll8"},
	{Collective: Reduce, MaxBytes: 1 << 20, Algorithm: "direct_ll128"},
	{Collective: Reduce, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: Reduce, Algorithm: "chunk"},

	{Collective: Barrier, Algorithm: "signal"},
}
