// Package model predicts how long algorithms on GPUs take, from the number of ranks,
// the bytes and what is known of the links between the GPUs. It chooses where there are
// no measurements: numbers of ranks, kinds of GPUs and links for which there are no rows.
//
// A call takes the time of a launch, then for each step the time that a word needs to the peers and
// what is done about it there, and the time in which links, or the GPU's own memory, carry all
// bytes: whichever is longer. The bytes that each algorithm sends follow from its kernel; the few
// other constants were fitted to two and four H200s (docs/results/h200), and a test fits them
// again.
package model

import (
	"fmt"
	"strings"
)

// Links are the parameters: what is known of the GPUs of a job and of what joins
// them, those of the slowest pair. A higher rate never makes a call slower.
type Links struct {
	Latency float64 // µs from a store until a peer that polls has seen it

	// GB/s out of, or into, each GPU, with all peers together, and as much the
	// other way: of stores, of loads, and of copy engines.
	Store, Load, Copy float64

	// GB/s of copy engines to one peer. It is less than Copy where GPUs are joined
	// in pairs and not by a switch.
	Each float64

	Memory float64 // GB/s of the GPU's own
	Lines  bool    // whether a store of 128 bytes arrives whole
}

// String prints the parameters as a log has them.
func (l Links) String() string {
	lines := "lines may be torn"
	if l.Lines {
		lines = "whole lines"
	}
	return fmt.Sprintf("latency %.2f µs, stores %.0f GB/s, loads %.0f, copies %.0f and %.0f to one peer, memory %.0f, %s",
		l.Latency, l.Store, l.Load, l.Copy, l.Each, l.Memory, lines)
}

// The share that two H200s with 18 NVLinks of version 4 reach of 450 GB/s in each direction, both
// at once (docs/results/h200/2-gpus.links.txt). MSCCL++ publishes 244 to 255 GB/s of 300 for eight
// A100s, so the share of stores holds there as well.
const (
	storeShare = 365.0 / 450
	loadShare  = 334.0 / 450
	copyShare  = 390.0 / 450
)

// Half of a round trip of a word between two H200s (2-gpus.latency.txt). That of other
// NVLinks is taken to be the same, and that of PCIe is assumed: no run has measured it
// for this library.
const (
	linkLatency = 0.71
	busLatency  = 1.3
	hostLatency = 2.0 // a poll is a load over the bus
)

// Of what PCIe carries in theory copies reach 54 to 56 of 63 GB/s on published
// machines of version 5. The rest is assumed: headers cost stores a fifth, and loads
// wait for one crossing after the other.
const (
	busCopyShare  = 0.87
	busStoreShare = 0.80
	busLoadShare  = 0.50
)

// OverNVLink has GPUs that reach their peers over as many links of a version: each over
// all of them, through a switch, or each peer over its part of them.
func OverNVLink(links, version, peers int, switched bool, memory float64) Links {
	return over(float64(links)*linkRate(version), linkLatency, peers, switched, memory)
}

// OverLinks has devices of a maker whose links to a peer carry rate GB/s each way, and are taken to reach the shares of it that
// NVLinks do. Without switches the links to the other peers come on top. A latency of 0 is not known.
func OverLinks(rate, latency float64, peers int, switched bool, memory float64) Links {
	if latency <= 0 {
		latency = linkLatency
	}
	if !switched {
		rate *= float64(max(peers, 1))
	}
	return over(rate, latency, peers, switched, memory)
}

// over has devices out of each of which links carry raw GB/s.
func over(raw, latency float64, peers int, switched bool, memory float64) Links {
	l := Links{Latency: latency, Store: raw * storeShare, Load: raw * loadShare, Copy: raw * copyShare, Memory: memory, Lines: true}
	l.Each = l.Copy
	if !switched {
		l.Each /= float64(max(peers, 1))
	}
	return l
}

// linkRate is what one NVLink carries each way, in GB/s.
func linkRate(version int) float64 {
	switch {
	case version == 1:
		return 20
	case version >= 5:
		return 50
	}
	return 25 // 2 to 4, and those of which nothing is known
}

// The rate of one xGMI link each way in GB/s, with which RCCL reckons: of MI300, and of MI200. Published runs of MI300A load at two
// fifths of the rate at which they store (233 and 93 GB/s to three peers). No run of this library has measured any of it.
const (
	xgmiRate      = 48
	xgmiRateMI200 = 36
	xgmiLoadShare = 93.0 / 233
)

// IsAMD reports whether the name of a GPU is one of AMD's.
func IsAMD(name string) bool { return strings.HasPrefix(name, "AMD ") }

// OverXGMI has AMD's GPUs of a name that have as many links to each peer. Stores to all peers at once go over all of them.
func OverXGMI(links, peers int, name string) Links {
	each := float64(links) * xgmiRate
	if strings.Contains(name, "MI2") {
		each = float64(links) * xgmiRateMI200
	}
	raw := each * float64(max(peers, 1))
	return Links{Latency: busLatency, Store: raw, Load: raw * xgmiLoadShare, Copy: raw, Each: each, Memory: MemoryOf(name)}
}

// OverPCIe has GPUs on a bus that carries raw GB/s each way, such as 31.5 for 16 lanes of
// version 4.
func OverPCIe(raw, memory float64) Links {
	return Links{
		Latency: busLatency, Store: raw * busStoreShare, Load: raw * busLoadShare, Copy: raw * busCopyShare, Each: raw * busCopyShare,
		Memory: memory,
	}
}

// OverHost has GPUs that meet in memory of the host: all that they load and store is
// there, also what is their own.
func OverHost(raw float64) Links {
	l := OverPCIe(raw, raw*(busStoreShare+busLoadShare)) // loads and stores at once
	l.Latency = hostLatency
	return l
}

// Slower is what holds for both.
func (l Links) Slower(o Links) Links {
	return Links{
		Latency: max(l.Latency, o.Latency), Store: min(l.Store, o.Store), Load: min(l.Load, o.Load), Copy: min(l.Copy, o.Copy),
		Each: min(l.Each, o.Each), Memory: min(l.Memory, o.Memory), Lines: l.Lines && o.Lines,
	}
}

// chips are what GPUs read and write of their own memory, in GB/s, as their makers say.
var chips = []struct {
	name   string
	memory float64
}{
	{"B200", 8000}, {"B300", 8000}, {"GH200", 4000}, {"H200", 4800}, {"H100", 3350}, {"H800", 3350}, {"H20", 4000},
	{"A100", 1555}, {"A800", 1555}, {"A30", 933}, {"L40", 864}, {"A40", 696}, {"A10", 600}, {"L4", 300}, {"V100", 900},
	{"MI325", 6000}, {"MI300", 5300}, {"MI250", 1600}, {"MI210", 1600}, {"MI2", 1600},
}

// MemoryOf is the rate of a GPU's own memory by its name, and a low one for those that are
// not known: it matters to little but sums behind copies.
func MemoryOf(name string) float64 {
	for _, c := range chips {
		if strings.Contains(name, c.name) {
			return c.memory
		}
	}
	return 600
}
