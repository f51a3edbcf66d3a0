package choose

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

var yes, no = true, false

// HostTable is what measurements on CPUs suggest. Between cores a line of memory
// that was just written is what costs, and packets need twice as many, so they win
// for single lines only. Stages beat pulling where two processors share caches, and
// lose by far where they do not: two ranks that could pull try both, see trial.go.
var HostTable = []engine.Row{
	{Collective: collective.AllReduce, MaxBytes: 128, Algorithm: "allpair_ll8"},
	{Collective: collective.AllReduce, MaxBytes: 8 << 10, Algorithm: "allpair_chunk"},
	{Collective: collective.AllReduce, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: collective.AllReduce, MaxBytes: 32 << 10, MaxRanks: 2, Algorithm: "allpair_chunk"},
	{Collective: collective.AllReduce, MaxRanks: 2, Algorithm: "pull"},
	{Collective: collective.AllReduce, Algorithm: "twophase_chunk"},
	{Collective: collective.AllGather, MaxBytes: 128, Algorithm: "ll8"},
	{Collective: collective.AllGather, MaxBytes: 8 << 10, Algorithm: "chunk"},
	{Collective: collective.AllGather, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: collective.AllGather, MaxRanks: 2, Algorithm: "pull"},
	{Collective: collective.AllGather, Algorithm: "chunk"},
	{Collective: collective.ReduceScatter, MaxBytes: 128, Algorithm: "ll8"},
	{Collective: collective.ReduceScatter, MaxBytes: 8 << 10, Algorithm: "chunk"},
	{Collective: collective.ReduceScatter, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: collective.ReduceScatter, Algorithm: "chunk"},
	{Collective: collective.AllToAll, MaxBytes: 128, Algorithm: "ll8"},
	{Collective: collective.AllToAll, MaxBytes: 8 << 10, Algorithm: "chunk"},
	{Collective: collective.AllToAll, Registered: &yes, Algorithm: "zerocopy"},
	{Collective: collective.AllToAll, Algorithm: "chunk"},
	{Collective: collective.Broadcast, Algorithm: "chunk"},
	{Collective: collective.Reduce, Algorithm: "chunk"},
	{Collective: collective.Barrier, Algorithm: "signal"},
}
