package simulate

// shaped is a machine of network namespaces whose interfaces let 100 Mbit/s through:
// 12.5 MB/s, less the headers of 66 bytes in a frame of 1514. The other numbers are
// rough, and together make less than a hundredth of the times.
func shaped() Machine {
	return Machine{
		Name: "shaped",
		NICs: 1, NICBandwidth: 0.0125 * (1514 - 66) / 1514, NetworkLatency: 100, TriggerLatency: 20, MessageOverhead: 5,
		LinkBandwidth: 2, LinkLatency: 5, PacketFactor: 2, NetworkPacketFactor: 1, ReduceBandwidth: 5, Launch: 5,
	}
}

// namespaceTime is a call over so many hosts.
type namespaceTime struct {
	hosts      int
	collective Collective
	algorithm  Algorithm
	bytes      int64
	time       float64
}

// by is the name of the algorithm in the program.
func (t namespaceTime) by() string {
	if t.algorithm == FlatDirect {
		return "ports"
	}
	return "hierarchical_large"
}

// pieces is 0 where the model may choose: what follows from the number of pieces hardly shows. The
// second step of a broadcast is other hosts' work, so that the way of the first piece does.
func (t namespaceTime) pieces() int {
	const share = 256 << 10 // of a piece, for each of two ranks
	if t.collective == Broadcast {
		return int(t.bytes / (2 * share))
	}
	return 0
}

// namespaceTimes are what scripts/scaling-check.sh measured with two ranks on each
// host; docs/results/scaling has its output, and a test reads it.
var namespaceTimes = []namespaceTime{
	{2, AllReduce, LargeDirect, 2097152, 179474},
	{2, AllGather, LargeDirect, 2097152, 89818},
	{2, ReduceScatter, LargeDirect, 2097152, 90133},
	{2, Broadcast, LargeDirect, 2097152, 175790},
	{2, AllReduce, FlatDirect, 2097152, 358486},
	{2, AllGather, FlatDirect, 2097152, 178892},
	{2, ReduceScatter, FlatDirect, 2097152, 179960},
	{2, AllToAll, FlatDirect, 2097152, 179122},
	{3, AllReduce, LargeDirect, 2097152, 239869},
	{3, AllGather, LargeDirect, 2097144, 120022},
	{3, ReduceScatter, LargeDirect, 2097144, 119570},
	{3, Broadcast, LargeDirect, 2097152, 196382},
	{3, AllReduce, FlatDirect, 2097152, 476671},
	{3, AllGather, FlatDirect, 2097144, 239110},
	{3, ReduceScatter, FlatDirect, 2097144, 238760},
	{3, AllToAll, FlatDirect, 2097144, 238959},
	{4, AllReduce, LargeDirect, 2097152, 273694},
	{4, AllGather, LargeDirect, 2097152, 138500},
	{4, ReduceScatter, LargeDirect, 2097152, 136229},
	{4, Broadcast, LargeDirect, 2097152, 206385},
	{4, AllReduce, FlatDirect, 2097152, 540373},
	{4, AllGather, FlatDirect, 2097152, 270272},
	{4, ReduceScatter, FlatDirect, 2097152, 269896},
	{4, AllToAll, FlatDirect, 2097152, 271972},
}
