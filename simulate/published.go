package simulate

import "fmt"

// Measurement is a measured time, and how to predict it.
type Measurement struct {
	Source     string
	Machine    Machine
	Hosts      int
	Ranks      int // on each host
	Collective Collective
	Bytes      int64
	Algorithm  Algorithm
	Pieces     int  // 0: as chosen
	NoCopies   bool // data is moved by kernels alone, or is not on GPUs
	Time       float64

	// File is the raw output, below docs/results; By is the program's algorithm that it
	// contains. Both are empty for times of other programs.
	File, By string
}

const (
	upstream = "MSCCL++ baseline"
	peer     = "MSCCL++ 0.9, once" // no raw output was kept
	ours     = "this project"
	older    = "this project, c6b6b86" // with kernels that take 0.7 us longer to begin
	oursTCP  = "this project, tcp"
)

// Published returns measurements to compare predictions with:
//
//   - times that the tests of MSCCL++ expect of two hosts with eight H100 each, with
//     the pieces and the way of moving data that its test kernels have;
//   - times on single hosts with H200s, where there is no network;
//   - times on two to four hosts that are network namespaces, where there is nothing
//     but the network.
//
// Those of this project name the file that they are in.
func Published() []Measurement {
	h100, h200 := Machines()[0], Machines()[1]
	two := Measurement{Source: upstream, Machine: h100, Hosts: 2, Ranks: 8}
	two.Machine.NetworkPacketFactor = 2 // its kernels store the bytes that its proxies send
	with := func(m Measurement, c Collective, a Algorithm, bytes int64, pieces int, noCopies bool, time float64) Measurement {
		m.Collective, m.Algorithm, m.Bytes, m.Pieces, m.NoCopies, m.Time = c, a, bytes, pieces, noCopies, time
		return m
	}
	eight := Measurement{Source: peer, Machine: h200, Hosts: 1, Ranks: 8}
	all := []Measurement{
		with(two, AllReduce, Small, 8<<10, 0, true, 15.10),
		with(two, AllReduce, LargeDirect, 24<<20, 3, true, 212.39),
		with(two, AllReduce, LargeDirect, 48<<20, 3, true, 363.40),
		with(two, AllReduce, LargeDirect, 3<<30, 3, false, 15989.38),
		with(two, AllReduce, LargeDirect, 3<<30, 3, true, 19321.02),
		with(two, AllGather, LargeDirect, 3<<30, 3, false, 7480.40),
		with(two, AllToAll, FlatDirect, 1<<30, 0, false, 11076.24),
		with(eight, AllReduce, Small, 1<<10, 0, true, 3.94),
		with(eight, AllReduce, Small, 16<<10, 0, true, 5.08),
		with(eight, AllReduce, LargeDirect, 16<<20, 1, true, 101),
		with(eight, AllReduce, LargeDirect, 1<<30, 1, true, 6047),
	}
	for _, t := range gpuTimes {
		all = append(all, t.measurement(h200))
	}
	for _, t := range namespaceTimes {
		hosts := Measurement{Source: oursTCP, Machine: shaped(), Hosts: t.hosts, Ranks: 2, File: "scaling/namespaces.jsonl", By: t.by()}
		all = append(all, with(hosts, t.collective, t.algorithm, t.bytes, t.pieces(), true, t.time))
	}
	return all
}

// Predict predicts what was measured.
func (m Measurement) Predict() (Prediction, error) {
	machine := m.Machine
	if m.NoCopies {
		machine.CopyBandwidth = 0
	}
	on, err := NewCluster(m.Hosts, m.Ranks)
	if err != nil {
		return Prediction{}, err
	}
	p, err := Predict(Question{
		Machine: machine, Cluster: on, Collective: m.Collective, Algorithm: m.Algorithm, Bytes: m.Bytes, Pieces: m.Pieces,
	})
	if err != nil {
		return Prediction{}, fmt.Errorf("%s of %d bytes: %w", m.Collective, m.Bytes, err)
	}
	return p, nil
}
