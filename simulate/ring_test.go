package simulate

import (
	"math"
	"testing"
)

var ringMachine = Machine{
	Name: "ring", NICs: 8, NICBandwidth: 10, NetworkLatency: 3, TriggerLatency: 2, MessageOverhead: 0.5,
	LinkBandwidth: 100, LinkLatency: 1, PacketFactor: 2, NetworkPacketFactor: 1, ReduceBandwidth: 1000,
}

// One rank on each host: every hop is the network's, and a ring is so many of them
// one after the other.
func TestRingOfSingleRanks(t *testing.T) {
	p := predict(t, Question{Machine: ringMachine, Cluster: cluster(t, 5, 1), Collective: AllGather, Algorithm: FlatRing, Bytes: 5 * 100e3})
	hop := 100e3/10e3 + 5.0 // its bytes, the trigger, the flight
	if want := 4 * hop; p.Time != want || p.Formula != want || p.LinkBytes != 0 || p.NetworkBytes != 4*100e3 {
		t.Errorf("%+v, want a time of %g", p, want)
	}
	p = predict(t, Question{Machine: ringMachine, Cluster: cluster(t, 5, 1), Collective: AllReduce, Algorithm: FlatRing, Bytes: 5 * 100e3})
	adding := 3 * 100e3 / 1e6 // two vectors read, one written
	if want := 8*hop + 4*adding; math.Abs(p.Time-want) > 1e-9 {
		t.Errorf("all-reduce %g, want %g", p.Time, want)
	}
}

// On one host there is no network, and the link carries all rings.
func TestRingOnOneHost(t *testing.T) {
	p := predict(t, Question{Machine: ringMachine, Cluster: cluster(t, 1, 4), Collective: AllGather, Algorithm: FlatRing, Bytes: 4 * 1e6})
	if want := 3 * (1e6/100e3 + 2); p.Time != want || p.NetworkBytes != 0 || p.LinkBytes != 3e6 || p.NetworkSteps != 0 || p.LinkSteps != 3 {
		t.Errorf("%+v, want a time of %g and no network", p, want)
	}
}

// A share crosses the network once for each host of its way, and the way with most
// crossings is the longest: by hand for two hosts of two.
func TestRingCrossesHosts(t *testing.T) {
	p := predict(t, Question{Machine: ringMachine, Cluster: cluster(t, 2, 2), Collective: AllGather, Algorithm: FlatRing, Bytes: 4 * 1e3})
	// Of three hops two are the network's, with one of two rings each: 500 bytes.
	// A link carries, of two rings, the one that does not leave here: 500 bytes.
	want := 2*(0.5+5) + (500/100e3 + 2)
	if math.Abs(p.Time-want) > 1e-9 || p.NetworkBytes != 3*500 || p.LinkBytes != 3*500 || p.NetworkSteps != 2 || p.LinkSteps != 1 {
		t.Errorf("%+v, want a time of %g", p, want)
	}
}

// At large sizes a ring is bound by the adapters, all of which are busy.
func TestRingIsBoundByAllAdapters(t *testing.T) {
	for _, hosts := range []int{2, 7, 64} {
		p := predict(t, Question{Machine: ringMachine, Cluster: cluster(t, hosts, 8), Collective: AllReduce, Algorithm: FlatRing, Bytes: 1 << 40})
		alone := p.NetworkBytes / 10e3
		if p.Time < alone || p.Time > 1.1*alone {
			t.Errorf("%d hosts: %g, the adapters alone %g", hosts, p.Time, alone)
		}
	}
}

// Pieces follow each other along a chain as through a pipe.
func TestChain(t *testing.T) {
	on := cluster(t, 4, 1)
	one := predict(t, Question{Machine: ringMachine, Cluster: on, Collective: Broadcast, Algorithm: FlatRing, Bytes: 1e6, Pieces: 1})
	if want := 3 * (100.0 + 5); one.Time != want {
		t.Errorf("one piece %g, want %g", one.Time, want)
	}
	ten := predict(t, Question{Machine: ringMachine, Cluster: on, Collective: Broadcast, Algorithm: FlatRing, Bytes: 1e6, Pieces: 10})
	if want := 3*(10.0+5) + 9*10; ten.Time != want || ten.Formula != want {
		t.Errorf("ten pieces %g and %g by formula, want %g", ten.Time, ten.Formula, want)
	}
	chosen := predict(t, Question{Machine: ringMachine, Cluster: on, Collective: Broadcast, Algorithm: FlatRing, Bytes: 16 << 20})
	if chosen.Pieces < 8 {
		t.Errorf("%d pieces of 16 MiB: expected many", chosen.Pieces)
	}
}

// Hosts of different sizes: as many rings as the smallest has ranks.
func TestRingOfUnevenHosts(t *testing.T) {
	p := predict(t, Question{Machine: ringMachine, Cluster: cluster(t, 4, 4, 2), Collective: AllGather, Algorithm: FlatRing, Bytes: 12e6})
	if want := 11 * 1e6 / 2.0; p.NetworkBytes != want {
		t.Errorf("%g bytes leave a host by one rank, want %g: each of two rings carries half", p.NetworkBytes, want)
	}
}
