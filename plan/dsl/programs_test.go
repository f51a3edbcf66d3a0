package dsl_test

import (
	"github.com/mscclpp-go/mscclpp/plan/dsl"
)

// sample is a program whose plan MSCCL++ makes too, under the same name in the collection of plans.
type sample struct {
	file    string
	name    string // if it is not that of the file
	of      dsl.Collective
	opt     dsl.Options
	program func(p *dsl.Program)
}

var packets = dsl.Options{Protocol: dsl.LL, DoubleScratch: true}

func instances(n int, o dsl.Options) dsl.Options {
	o.Instances = n
	return o
}

// multinode are the options of plans for several hosts.
func multinode(least, most uint64) dsl.Options {
	return dsl.Options{Protocol: dsl.LL, NoAutoSync: true, ReuseResources: true, DoubleScratch: true, MinSize: least, MaxSize: most}
}

func samples() []sample {
	simple := dsl.Options{}
	return []sample{
		{"single_node/allgather-2ranks", "", dsl.AllGather(2, 1, true), simple, allGather},
		{"single_node/allgather_tbg-2ranks", "", dsl.AllGather(2, 1, true), simple, allGatherGroup},
		{"single_node/allgather_pkt-4ranks", "", dsl.AllGather(4, 1, true), packets, allGatherPackets},
		{"single_node/allgather_pkt_rppkt-4ranks", "", dsl.AllGather(4, 1, true), packets, allGatherForwarded},
		{"single_node/allgather_nvls_zero_copy-4ranks-inst2", "", dsl.AllGather(4, 1, true), dsl.Options{Instances: 2, ThreadsPerBlock: 256}, allGatherSwitch},
		{"single_node/allgather_nvls_zero_copy_pkt-4ranks", "", dsl.AllGather(4, 1, true),
			dsl.Options{Protocol: dsl.LL, NoAutoSync: true, DoubleScratch: true, ThreadsPerBlock: 256, MinSize: 1024, MaxSize: 1 << 20}, allGatherSwitchPackets},
		{"single_node/allreduce-2ranks", "", dsl.AllReduce(2, 8, true), simple, allReduce},
		{"single_node/allreduce-4ranks-limits", "", dsl.AllReduce(4, 8, true), dsl.Options{ThreadsPerBlock: 512, MinSize: 4096, MaxSize: 1 << 20}, allReduce},
		{"single_node/allreduce_naivy-4ranks", "", dsl.AllReduce(4, 1, true), dsl.Options{Protocol: dsl.LL}, allReduceOneBlock},
		{"single_node/allreduce_pkt-4ranks", "", dsl.AllReduce(4, 4, true), dsl.Options{Protocol: dsl.LL, DoubleScratch: true, NoAutoSync: true}, allReducePackets},
		{"single_node/allreduce_pkt-2ranks-inst2", "", dsl.AllReduce(2, 2, true),
			dsl.Options{Protocol: dsl.LL, DoubleScratch: true, NoAutoSync: true, Instances: 2}, allReducePackets},
		{"single_node/allreduce_nvls_zero_copy-4ranks-inst2", "", dsl.AllReduce(4, 1, true), instances(2, simple), allReduceSwitch},
		{"single_node/allreduce_pipeline-2ranks", "", dsl.AllReduce(2, 1, true), dsl.Options{ReuseResources: true}, allReducePipeline},
		{"single_node/alltoall/alltoall-4ranks", "", dsl.AllToAll(4, 1, true), instances(2, simple), allToAll},
		{"single_node/alltoall/alltoall_pipeline-2ranks", "", dsl.AllToAll(2, 1, true), instances(2, simple), allToAllPipeline},
		{"single_node/alltoall/alltoall_ring-4ranks-inst2", "", dsl.AllToAll(4, 1, true), instances(2, simple), allToAllRing},
		{"single_node/alltoall/alltoall_ring_oop-4ranks-inst2", "", dsl.AllToAll(4, 1, false), instances(2, simple), allToAllRingCopy},

		{"multi_node/allgather-2ranks-2x1", "", dsl.AllGather(2, 1, true), simple, hosts(1).allGather},
		{"multi_node/allgather-4ranks-2x2", "", dsl.AllGather(4, 1, true), simple, hosts(2).allGather},
		{"multi_node/allgather-16ranks-2x8", "", dsl.AllGather(16, 1, true), simple, hosts(8).allGather},
		{"multi_node/allgather_pkt-4ranks-2x2", "", dsl.AllGather(4, 1, true), packets, hosts(2).allGatherPackets},
		{"multi_node/allgather_tbg-4ranks-2x2-tbg2", "", dsl.AllGather(4, 1, false), simple, hosts(2).allGatherGroups},
		{"multi_node/allgather_tbg-2ranks-1x2-tbg2", "", dsl.AllGather(2, 1, false), simple, hosts(2).allGatherGroups},
		{"multi_node/reducescatter-4ranks-2x2", "", dsl.ReduceScatter(4, 1, true), simple, hosts(2).reduceScatter},
		{"multi_node/reducescatter_pkt-4ranks-2x2", "", dsl.ReduceScatter(4, 1, true), packets, hosts(2).reduceScatterPackets},
		{"multi_node/reducescatter_pkt-4ranks-2x2-inst2", "", dsl.ReduceScatter(4, 1, true), instances(2, packets), hosts(2).reduceScatterPackets},
		{"multi_node/send_recv-2ranks-1x2-inst1", "", dsl.SendRecv(2, 1, false), simple, sendRecv(1)},
		{"multi_node/send_recv-4ranks-2x2-mask1-inst2", "", dsl.SendRecv(4, 1, false), instances(2, simple), sendRecv(2)},
		{"multi_node/send_recv-8ranks-2x4-mask3-inst1", "", dsl.SendRecv(8, 1, false), simple, sendRecv(4)},

		{"default_algos/allgather_multi_nodes-2ranks-2x1", "", dsl.AllGather(2, 1, false), multinode(1<<10, 8<<20), hosts(1).defaultAllGather(false)},
		{"default_algos/allgather_multi_nodes-4ranks-2x2-inplace", "", dsl.AllGather(4, 1, true), multinode(1<<10, 8<<20), hosts(2).defaultAllGather(true)},
		{"default_algos/allgather_multi_nodes-8ranks-4x2", "", dsl.AllGather(8, 1, false), multinode(1<<10, 8<<20), hosts(2).defaultAllGather(false)},
		{"default_algos/allreduce_multi_nodes-4ranks-2x2-tbg1", "", dsl.AllReduce(4, 1, true), multinode(1<<10, 64<<10), hosts(2).defaultAllReduce(1)},
		{"default_algos/allreduce_multi_nodes-4ranks-2x2-tbg4", "", dsl.AllReduce(4, 1, true), multinode(128<<10, 2<<20), hosts(2).defaultAllReduce(4)},
		{"default_algos/allreduce_multi_nodes-4ranks-2x2-tbg1-inst2", "", dsl.AllReduce(4, 1, true), instances(2, multinode(1<<10, 64<<10)), hosts(2).defaultAllReduce(1)},
		{"default_algos/allreduce_multi_nodes-16ranks-2x8-1K_64K", "", dsl.AllReduce(16, 1, true), multinode(1<<10, 64<<10), hosts(8).defaultAllReduce(1)},
		{"default_algos/reducescatter_multi_nodes-2ranks-1x2-tbg4", "", dsl.ReduceScatter(2, 1, true), multinode(1<<10, 8<<20), hosts(2).defaultReduceScatter(4)},
		{"default_algos/reducescatter_multi_nodes-4ranks-2x2-tbg1", "", dsl.ReduceScatter(4, 1, true), multinode(1<<10, 8<<20), hosts(2).defaultReduceScatter(1)},

		{"executor-tests/reduce-2ranks", "", dsl.AllReduce(2, 2, true), simple, reduceMixed},
		{"executor-tests/reduce-2ranks-inst2", "", dsl.AllReduce(2, 2, true), instances(2, simple), reduceMixed},
		{"executor-tests/reduce_tbg-2ranks", "", dsl.AllReduce(2, 2, true), simple, reduceMixedGroup},
		{"executor-tests/reduce_nvls-4ranks", "", dsl.AllReduce(4, 1, true), simple, allReduceSwitch},
		{"executor-tests/reduce_nvls_pipeline-2ranks", "", dsl.AllReduce(2, 1, true), simple, allReduceSwitchLoop},
		{"executor-tests/reduce_pack-2ranks", "", dsl.AllReduce(2, 1, true), packets, reducePackets},
		{"executor-tests/reduce_pack-2ranks-inst2", "", dsl.AllReduce(2, 1, true), instances(2, packets), reducePackets},
		{"executor-tests/transfer_pack_tbg-2ranks", "", dsl.AllGather(2, 1, true), packets, transferPacketsGroups},

		{"unit_tests/barrier_test-1ranks", "barrier_test", dsl.Test(1, 0, 0), simple, func(p *dsl.Program) { p.Rank(0).Barrier(0, 1) }},
		{"unit_tests/copy_test-1ranks", "copy_test", dsl.Test(1, 1, 1), simple, copyOne},
		{"unit_tests/flush/flush_test-2ranks", "flush_test", dsl.Test(2, 0, 0), simple, func(p *dsl.Program) { p.PortChannel(1, 0).Flush(0, dsl.Before) }},
		{"unit_tests/get/get_test-2ranks", "get_test", dsl.Test(2, 2, 0), simple, handshaken(getOne)},
		{"unit_tests/pipeline_test-1ranks", "barrier_test", dsl.Test(1, 1, 1), simple, func(p *dsl.Program) { p.Loop(1<<20, 1, func() { copyOne(p) }) }},
		{"unit_tests/put/put_with_signal_test-2ranks", "put_with_signal_test", dsl.Test(2, 2, 0), simple, putWithSignal},
		{"unit_tests/put_packet_test-2ranks", "put_packets_test", dsl.Test(2, 1, 0), dsl.Options{Protocol: dsl.LL}, putPackets},
		{"unit_tests/read_put_packet_test-2ranks", "read_put_packets_test", dsl.Test(2, 0, 0), dsl.Options{Protocol: dsl.LL}, forwardPackets},
		{"unit_tests/read_reduce/read_reduce_fuse_test-2ranks", "read_reduce_test", dsl.Test(2, 2, 2), simple, handshaken(readReduce)},
		{"unit_tests/reduce_send_test-2ranks", "reduce_send_test", dsl.Test(2, 2, 2), simple, handshaken(reduceSend)},
		{"unit_tests/semaphore-1ranks", "semaphore_test", dsl.Test(1, 0, 0), simple, semaphores},
		{"unit_tests/signal_wait/signal_wait_fuse_test-2ranks", "signal_wait_test", dsl.Test(2, 0, 0), simple, signals},
		{"unit_tests/tbg/tbg_reduce_fuse_test-1ranks", "reduce_test", dsl.Test(1, 3, 2), simple, reduceGroup},
		{"unit_tests/unpack_packet_test-1ranks", "unpack_packets_test", dsl.Test(1, 1, 1), dsl.Options{Protocol: dsl.LL}, unpackOne},
	}
}
