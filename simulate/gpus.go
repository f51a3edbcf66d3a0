package simulate

import (
	"strings"
)

// gpuTime is a call of this project's on GPUs of one host: by the algorithm that the
// program chose, in registered buffers and recorded in a graph, the better of in place
// and out of place, medians of three jobs.
type gpuTime struct {
	ranks      int
	collective Collective
	bytes      int64
	by         string
	time       float64
}

// gpuTimes are some of the lines of docs/results/h200, with four digits; a test reads
// these files. Those of two GPUs are of kernels that take 0.7 us less to begin than
// those of four had.
var gpuTimes = []gpuTime{
	{2, AllReduce, 1 << 10, "oneshot_ll8", 1.713},
	{2, AllReduce, 64 << 10, "oneshot_ll128", 2.288},
	{2, AllReduce, 1 << 20, "twoshot_ll128", 5.64},
	{2, AllReduce, 16 << 20, "zerocopy", 54.04},
	{2, AllReduce, 64 << 20, "zerocopy", 202.1},
	{2, AllReduce, 1 << 30, "copy", 2774},
	{2, AllGather, 1 << 10, "direct_ll8", 1.651},
	{2, AllGather, 64 << 10, "direct_ll8", 2.07},
	{2, AllGather, 1 << 20, "direct_ll128", 3.855},
	{2, AllGather, 16 << 20, "push", 28.59},
	{2, AllGather, 64 << 20, "push", 97.75},
	{2, AllGather, 1 << 30, "copy", 1390},
	{2, ReduceScatter, 1 << 10, "direct_ll8", 1.635},
	{2, ReduceScatter, 1 << 20, "direct_ll128", 3.956},
	{2, ReduceScatter, 64 << 20, "zerocopy", 107.3},
	{2, ReduceScatter, 1 << 30, "copy", 1486},
	{2, AllToAll, 1 << 10, "direct_ll8", 1.613},
	{2, AllToAll, 1 << 20, "direct_ll128", 3.753},
	{2, AllToAll, 64 << 20, "push", 100.4},
	{2, AllToAll, 1 << 30, "copy", 1396},
	{4, AllReduce, 1 << 10, "oneshot_ll8", 2.631},
	{4, AllReduce, 64 << 10, "oneshot_ll128", 3.521},
	{4, AllReduce, 1 << 20, "twoshot_ll128", 8.774},
	{4, AllReduce, 16 << 20, "zerocopy", 81.97},
	{4, AllReduce, 64 << 20, "zerocopy", 318.6},
	{4, AllReduce, 1 << 30, "copy", 4245},
	{4, AllGather, 1 << 10, "direct_ll8", 2.804},
	{4, AllGather, 64 << 10, "direct_ll8", 3.18},
	{4, AllGather, 1 << 20, "direct_ll128", 5.283},
	{4, AllGather, 16 << 20, "push", 40.74},
	{4, AllGather, 64 << 20, "push", 148.9},
	{4, AllGather, 1 << 30, "copy", 2085},
	{4, ReduceScatter, 1 << 10, "direct_ll8", 2.752},
	{4, ReduceScatter, 1 << 20, "direct_ll128", 5.449},
	{4, ReduceScatter, 64 << 20, "zerocopy", 159.1},
	{4, ReduceScatter, 1 << 30, "copy", 2302},
	{4, AllToAll, 1 << 10, "direct_ll8", 2.702},
	{4, AllToAll, 1 << 20, "direct_ll128", 5.437},
	{4, AllToAll, 64 << 20, "copy", 166.1},
	{4, AllToAll, 1 << 30, "copy", 2090},
}

// measurement says how the model has it.
func (t gpuTime) measurement(on Machine) Measurement {
	m := Measurement{
		Source: ours, Machine: on, Hosts: 1, Ranks: t.ranks, Collective: t.collective, Bytes: t.bytes, Time: t.time,
		File: map[int]string{2: "h200/2-gpus.jsonl", 4: "h200/4-gpus.c6b6b86.jsonl"}[t.ranks], By: t.by, NoCopies: t.by != "copy",
	}
	if t.ranks == 4 {
		m.Source = older
	}
	if strings.HasSuffix(t.by, "_ll128") { // lines of 128 bytes, 8 of which are a flag
		m.Machine.PacketFactor = 128.0 / 120
	}
	m.Algorithm, m.Pieces = modelOf(t.collective, t.by)
	return m
}

// modelOf is the model of an algorithm inside a host, and its pieces: 0 as chosen.
func modelOf(c Collective, by string) (Algorithm, int) {
	switch {
	case strings.HasPrefix(by, "oneshot_"):
		return SmallWhole, 0
	case strings.HasPrefix(by, "twoshot_"), strings.HasPrefix(by, "direct_"):
		return Small, 0
	case c == AllToAll:
		return FlatDirect, 0
	case by == "copy" && c == AllReduce:
		return LargeDirect, 2
	case by == "copy" && c == AllGather:
		return FlatDirect, 0
	case by == "push":
		return LargeDirect, 1
	}
	return LargeDirect, 0 // the rank that sums does it while it loads
}
