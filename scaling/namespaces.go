package scaling

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

// namespaceTimes are what scripts/scaling-check.sh measured with two ranks on each
// host; docs/results/scaling has its output.
var namespaceTimes = []struct {
	hosts      int
	collective Collective
	algorithm  Algorithm
	bytes      int64
	time       float64
}{
	{2, AllReduce, LargeDirect, 2097152, 207095},
	{2, AllGather, LargeDirect, 2097152, 90320},
	{2, ReduceScatter, LargeDirect, 2097152, 90957},
	{2, AllReduce, FlatDirect, 2097152, 409359},
	{2, AllGather, FlatDirect, 2097152, 182512},
	{2, ReduceScatter, FlatDirect, 2097152, 186969},
	{2, AllToAll, FlatDirect, 2097152, 183575},
	{3, AllReduce, LargeDirect, 2097152, 250722},
	{3, AllGather, LargeDirect, 2097144, 123618},
	{3, ReduceScatter, LargeDirect, 2097144, 120020},
	{3, AllReduce, FlatDirect, 2097152, 547037},
	{3, AllGather, FlatDirect, 2097144, 242888},
	{3, ReduceScatter, FlatDirect, 2097144, 248090},
	{3, AllToAll, FlatDirect, 2097144, 240277},
	{4, AllReduce, LargeDirect, 2097152, 330272},
	{4, AllGather, LargeDirect, 2097152, 155641},
	{4, ReduceScatter, LargeDirect, 2097152, 139902},
	{4, AllReduce, FlatDirect, 2097152, 567707},
	{4, AllGather, FlatDirect, 2097152, 277161},
	{4, ReduceScatter, FlatDirect, 2097152, 290783},
	{4, AllToAll, FlatDirect, 2097152, 295667},
}
