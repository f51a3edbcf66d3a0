package simulate

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// each calls f for every collective, algorithm and a choice of clusters.
func each(t *testing.T, f func(q Question)) {
	t.Helper()
	for _, on := range []Cluster{
		cluster(t, 1, 8), cluster(t, 2, 8), cluster(t, 3, 8), cluster(t, 16, 8), cluster(t, 5, 1), cluster(t, 64, 4), cluster(t, 4, 8, 4), cluster(t, 6, 2, 8, 3),
	} {
		for _, c := range predicted {
			for _, a := range Algorithms(c, on) {
				f(Question{Machine: Machines()[0], Cluster: on, Collective: c, Algorithm: a})
			}
		}
	}
}

func predict(t *testing.T, q Question) Prediction {
	t.Helper()
	p, err := Predict(q)
	if err != nil {
		t.Fatalf("%s by %s, %d hosts of %v, %d bytes: %v", q.Collective, q.Algorithm, q.Cluster.hosts, q.Cluster.pattern, q.Bytes, err)
	}
	return p
}

var manySizes = []int64{1, 1 << 10, 8<<10 + 4, 1 << 20, 24 << 20, 1 << 30, 3 << 30}

// With one piece nothing overlaps, and the simulation is the sum of the stages.
func TestFormulaIsExactForOnePiece(t *testing.T) {
	each(t, func(q Question) {
		if q.Algorithm == FlatRing {
			return
		}
		for _, q.Bytes = range manySizes {
			q.Pieces = 1
			if p := predict(t, q); math.Abs(p.Time-p.Formula) > 1e-9*p.Time {
				t.Errorf("%s by %s, %d hosts of %v, %d bytes: %g simulated, %g by formula", q.Collective, q.Algorithm, q.Cluster.hosts, q.Cluster.pattern, q.Bytes, p.Time, p.Formula)
			}
		}
	})
}

// With more, the simulation is never faster than the bound, rarely much slower with
// the number of pieces that is chosen, and no resource works longer than it takes.
func TestFormulaIsABound(t *testing.T) {
	within, all, worst := 0, 0, 0.0
	each(t, func(q Question) {
		for _, q.Bytes = range manySizes {
			for _, q.Pieces = range []int{0, 2, 3, 16} {
				p := predict(t, q)
				if most := max(p.LinkBusy, p.NetworkBusy, p.ReduceBusy); most > p.Time*(1+1e-9) {
					t.Errorf("%s by %s, %d bytes: a resource works %g in %g", q.Collective, q.Algorithm, q.Bytes, most, p.Time)
				}
				if p.Time < p.Formula*(1-1e-9) {
					t.Errorf("%s by %s, %d hosts of %v, %d bytes in %d pieces: %g simulated, and %g is the least",
						q.Collective, q.Algorithm, q.Cluster.hosts, q.Cluster.pattern, q.Bytes, p.Pieces, p.Time, p.Formula)
				}
				if q.Pieces == 0 {
					off := p.Time/p.Formula - 1
					worst = max(worst, off)
					if all++; off < 0.01 {
						within++
					}
				}
			}
		}
	})
	if within*10 < all*9 || worst > 0.7 {
		t.Errorf("%d of %d simulations are within 1%% of the bound, and one is %.0f%% above: expected nine of ten, and 70%%", within, all, 100*worst)
	}
}

// More bytes never take less time, and neither do more hosts.
func TestMonotonic(t *testing.T) {
	each(t, func(q Question) {
		q.Pieces = 1
		last := 0.0
		for _, q.Bytes = range manySizes {
			if p := predict(t, q); p.Time < last {
				t.Errorf("%s by %s: %d bytes take %g, fewer took %g", q.Collective, q.Algorithm, q.Bytes, p.Time, last)
			} else {
				last = p.Time
			}
		}
	})
	for _, c := range predicted {
		for _, a := range Algorithms(c, cluster(t, 2, 8)) {
			if c == AllToAll && a == LargeDoubling {
				continue // 32 hosts have fewer ways with the same bit than 31
			}
			for _, bytes := range []int64{1 << 10, 1 << 30} {
				last := 0.0
				for _, hosts := range []int{2, 3, 4, 8, 31, 32, 100, 1024} {
					p := predict(t, Question{Machine: Machines()[0], Cluster: cluster(t, hosts, 8), Collective: c, Algorithm: a, Bytes: bytes, Pieces: 1})
					if p.Time < last {
						t.Errorf("%s by %s: %d hosts take %g, fewer took %g", c, a, hosts, p.Time, last)
					}
					last = p.Time
				}
			}
		}
	}
}

// round is a machine of the size of those that are known, whose numbers do not change with
// what was measured last.
func round() Machine {
	m := Machines()[0]
	m.TriggerLatency, m.LinkBandwidth, m.LinkLatency = 2.9, 345, 1.29
	m.CopyBandwidth, m.CopyOverhead, m.Launch = 387, 10, 1.1
	return m
}

// A machine that is better in one number is never slower with one piece. With more,
// pieces may come in another order and wait for each other longer, but little longer
// with the number that is chosen.
func TestBetterMachines(t *testing.T) {
	betterMachines(t, round(), 1.02)
}

// So it is with the numbers of today. Rings between hosts of three sizes are the worst.
func TestBetterMachinesAsMeasured(t *testing.T) {
	betterMachines(t, Machines()[0], 1.04)
}

func betterMachines(t *testing.T, machine Machine, longer float64) {
	t.Helper()
	each(t, func(q Question) {
		q.Machine = machine
		for _, q.Bytes = range []int64{8 << 10, 24 << 20} {
			for _, q.Pieces = range []int{1, 0} {
				was := predict(t, q)
				for _, p := range Parameters() {
					better := q
					v := p.Get(&q.Machine)
					if p.Unit == "us" || strings.HasSuffix(p.Name, "packet-factor") {
						v = max(v/2, p.least)
					} else {
						v *= 2
					}
					if err := p.Set(&better.Machine, v); err != nil {
						t.Fatal(err)
					}
					if is := predict(t, better); is.Time > was.Time*longer+1e-9 || q.Pieces == 1 && is.Time > was.Time+1e-9 {
						t.Errorf("%s by %s of %d bytes in %d pieces: %g, and %g with %s %g instead of %g",
							q.Collective, q.Algorithm, q.Bytes, q.Pieces, was.Time, is.Time, p.Name, v, p.Get(&q.Machine))
					}
				}
			}
		}
	})
}

// At large sizes the rate is that of the busiest resource alone.
func TestBandwidthBound(t *testing.T) {
	for _, hosts := range []int{2, 16, 256} {
		for _, c := range []Collective{AllReduce, AllGather, ReduceScatter} {
			for _, a := range []Algorithm{LargeDirect, LargeDoubling} {
				p := predict(t, Question{Machine: Machines()[0], Cluster: cluster(t, hosts, 8), Collective: c, Algorithm: a, Bytes: 1 << 40, Pieces: 128})
				links := p.LinkBytes / (p.Machine.CopyBandwidth * 1e3)
				network := p.NetworkBytes / p.Machine.nic(8)
				if bound := max(links, network); p.Time < bound || p.Time > 1.02*bound {
					t.Errorf("%s by %s over %d hosts: %g, the links alone %g, the network %g", c, a, hosts, p.Time, links, network)
				}
			}
		}
	}
}

// At small sizes it is latencies alone.
func TestLatencyBound(t *testing.T) {
	m := Machines()[0]
	p := predict(t, Question{Machine: m, Cluster: cluster(t, 2, 8), Collective: AllReduce, Algorithm: Small, Bytes: 16})
	want := m.Launch + 2*m.LinkLatency + m.TriggerLatency + m.NetworkLatency + m.MessageOverhead
	if math.Abs(p.Time-want) > 0.01 || p.LinkSteps != 2 || p.NetworkSteps != 1 || p.Bound() != "latency" {
		t.Errorf("%+v, want %g", p, want)
	}
	p = predict(t, Question{Machine: m, Cluster: cluster(t, 1000, 8), Collective: AllReduce, Algorithm: LargeDoubling, Bytes: 16, Pieces: 1})
	if p.NetworkSteps != 20 || p.LinkSteps != 2 {
		t.Errorf("%d steps between 1000 hosts and %d within, want 20 and 2", p.NetworkSteps, p.LinkSteps)
	}
	p = predict(t, Question{Machine: m, Cluster: cluster(t, 10, 8), Collective: AllReduce, Algorithm: FlatRing, Bytes: 16})
	if p.NetworkSteps != 20 || p.LinkSteps != 2*79-20 {
		t.Errorf("a ring of 80 ranks: %d steps between hosts and %d within, want 20 and 138", p.NetworkSteps, p.LinkSteps)
	}
}

// A host with fewer ranks has more to send by each of them, and all wait for it.
func TestUnevenHosts(t *testing.T) {
	q := Question{Machine: Machines()[0], Cluster: cluster(t, 16, 8), Collective: AllReduce, Algorithm: LargeDirect, Bytes: 1 << 30}
	even := predict(t, q)
	q.Cluster = cluster(t, 16, 8, 8, 8, 4)
	uneven := predict(t, q)
	q.Cluster = cluster(t, 16, 4)
	fewer := predict(t, q)
	if uneven.Time <= even.Time || uneven.Time > fewer.Time*1.05 {
		t.Errorf("8 ranks everywhere %g, 4 on every fourth host %g, 4 everywhere %g: expected in this order", even.Time, uneven.Time, fewer.Time)
	}
}

func TestBest(t *testing.T) {
	q := Question{Machine: Machines()[0], Cluster: cluster(t, 16, 8), Collective: AllReduce, Bytes: 8 << 10}
	small, err := Best(q)
	if err != nil || len(small) != int(algorithms) || small[0].Algorithm != SmallWhole || small[1].Algorithm != Small {
		t.Fatalf("%v, %v: want all algorithms, and those for small messages first", small, err)
	}
	for i := 1; i < len(small); i++ {
		if small[i].Time < small[i-1].Time {
			t.Errorf("%s is listed behind %s, and faster", small[i].Algorithm, small[i-1].Algorithm)
		}
	}
	q.Bytes = 1 << 30
	if large, err := Best(q); err != nil || !large[0].Algorithm.Pipelined() || large[0].Pieces < 2 {
		t.Errorf("%v, %v: want a pipelined algorithm in pieces", large[0], err)
	}
}

func TestPredictRefuses(t *testing.T) {
	good := Question{Machine: Machines()[0], Cluster: cluster(t, 2, 8), Collective: AllReduce, Algorithm: LargeDirect, Bytes: 1}
	for want, change := range map[string]func(*Question){
		"0 bytes: expected":           func(q *Question) { q.Bytes = 0 },
		"-1 pieces: expected":         func(q *Question) { q.Pieces = -1 },
		"no cluster":                  func(q *Question) { q.Cluster = Cluster{} },
		"machine h100: link-latency":  func(q *Question) { q.Machine.LinkLatency = -1 },
		"alltoall by large-ring":      func(q *Question) { q.Collective, q.Algorithm = AllToAll, LargeRing },
		"the same number of ranks on": func(q *Question) { q.Collective, q.Algorithm, q.Cluster = AllToAll, LargeDoubling, cluster(t, 2, 8, 4) },
		"no such one":                 func(q *Question) { q.Algorithm = algorithms },
		"ask for fewer pieces":        func(q *Question) { q.Algorithm, q.Cluster, q.Pieces = LargeRing, cluster(t, 1024, 8), 1<<16 },
	} {
		q := good
		change(&q)
		if _, err := Predict(q); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Where only bytes count, what is predicted to be faster by a percent was faster.
func TestOrderOfNamespaces(t *testing.T) {
	type pair struct{ predicted, measured float64 }
	var all []pair
	for _, m := range Published() {
		if m.Source != oursTCP {
			continue
		}
		p, err := m.Predict()
		if err != nil {
			t.Fatal(err)
		}
		if p.Bound() != "network" {
			t.Errorf("%+v is bound by %s, expected the network", m, p.Bound())
		}
		all = append(all, pair{p.Time, m.Time})
	}
	if len(all) < 20 {
		t.Fatalf("%d measurements, expected 20 or more", len(all))
	}
	for _, a := range all {
		for _, b := range all {
			if a.predicted*1.01 < b.predicted && a.measured > b.measured {
				t.Errorf("predicted %g before %g, measured %g and %g", a.predicted, b.predicted, a.measured, b.measured)
			}
		}
	}
}

// Where docs/scaling.md says that doubling overtakes the others.
func TestDoublingOvertakes(t *testing.T) {
	q := Question{Machine: Machines()[0], Collective: AllReduce, Bytes: 1 << 10}
	faster := func(hosts int, than Algorithm) bool {
		q.Cluster = cluster(t, hosts, 8)
		q.Algorithm = LargeDoubling
		doubling := predict(t, q)
		q.Algorithm = than
		return doubling.Time < predict(t, q).Time
	}
	for _, c := range []struct {
		overhead float64
		hosts    int
		than     Algorithm
	}{{0.3, 115, LargeDirect}, {0.3, 325, Small}, {0.3, 326, SmallWhole}, {0.1, 435, LargeDirect}, {0.1, 1150, Small}, {1, 28, LargeDirect}, {1, 86, Small}} {
		q.Machine.MessageOverhead = c.overhead
		if faster(c.hosts-1, c.than) || !faster(c.hosts, c.than) {
			t.Errorf("%g us a message: doubling does not overtake %s at %d hosts", c.overhead, c.than, c.hosts)
		}
	}
}

// A request that is too large is refused, and the other algorithms are predicted all the same.
func TestTooLarge(t *testing.T) {
	huge := cluster(t, 1024, 1024)
	for _, c := range []Collective{AllReduce, Broadcast} {
		q := Question{Machine: Machines()[0], Cluster: huge, Collective: c, Algorithm: FlatRing, Bytes: 1 << 30, Pieces: 1 << 16}
		if _, err := Predict(q); !errors.Is(err, ErrTooLarge) || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "hops to simulate") {
			t.Errorf("%s: %v", c, err)
		}
	}
	all, err := Best(Question{Machine: Machines()[0], Cluster: huge, Collective: AllReduce, Bytes: 1 << 30})
	if err != nil || len(all) != int(algorithms)-1 {
		t.Errorf("%d predictions, %v: want all but the flat ring's", len(all), err)
	}
}

// Up to which size docs/scaling.md says that an algorithm is ahead of another one, and not
// twice as far.
func TestOvertakenBySize(t *testing.T) {
	q := Question{Machine: Machines()[0]}
	ahead := func(a, b Algorithm, kib int64) bool {
		q.Bytes = kib << 10
		q.Algorithm = a
		first := predict(t, q)
		q.Algorithm = b
		return first.Time <= predict(t, q).Time
	}
	for _, x := range []struct {
		collective Collective
		a, b       Algorithm
		hosts      int
		kib        int64
	}{
		{AllReduce, SmallWhole, Small, 2, 18}, {AllReduce, SmallWhole, Small, 8, 15}, {AllReduce, SmallWhole, Small, 64, 13},
		{AllReduce, SmallWhole, LargeDirect, 2, 40}, {AllReduce, SmallWhole, LargeDirect, 8, 62}, {AllReduce, SmallWhole, LargeDirect, 64, 33},
		{AllReduce, Small, LargeDirect, 2, 273}, {AllReduce, Small, LargeDirect, 8, 460}, {AllReduce, Small, LargeDirect, 64, 258},
		{AllToAll, Small, FlatDirect, 2, 108}, {AllToAll, Small, FlatDirect, 4, 313}, {AllToAll, Small, FlatDirect, 8, 693},
		{AllToAll, Small, FlatDirect, 16, 1423}, {AllToAll, Small, FlatDirect, 64, 5845}, {AllToAll, Small, FlatDirect, 256, 23500},
	} {
		q.Collective, q.Cluster = x.collective, cluster(t, x.hosts, 8)
		more := x.kib + max(1, x.kib/32) // steps of the search that found it
		if !ahead(x.a, x.b, x.kib) || ahead(x.a, x.b, more) {
			t.Errorf("%s over %d hosts: %s is not ahead of %s up to %d KiB and behind at %d", x.collective, x.hosts, x.a, x.b, x.kib, more)
		}
	}
}

// How far predictions are off, as docs/scaling.md says: one by one, and in the mean, by
// what is in their place. A row that is off by more needs another sentence there.
func TestPublished(t *testing.T) {
	type class struct {
		name             string
		slowest, fastest float64 // prediction over measurement
		worst            float64 // of the geometric mean, up or down
	}
	classOf := func(m Measurement) class {
		switch {
		case m.Source == upstream && m.Bytes < 1<<20:
			return class{"two hosts, kilobytes", 0.52, 1, 2}
		case m.Source == upstream && m.Bytes < 1<<30:
			return class{"two hosts, tens of megabytes", 0.60, 1, 1.55}
		case m.Source == upstream:
			return class{"two hosts, gigabytes", 0.83, 1, 1.10}
		case m.Source == peer && m.Bytes < 1<<20:
			return class{"eight GPUs, kilobytes", 0.49, 1, 1.85}
		case m.Source == peer:
			return class{"eight GPUs, megabytes", 0.91, 1, 1.08}
		case m.Source == ours:
			return class{"two GPUs", 0.82, 1.06, 1.05}
		case m.Source == older && m.Bytes < 16<<20:
			return class{"four GPUs, up to a megabyte", 0.58, 1, 1.55}
		case m.Source == older:
			return class{"four GPUs, more", 0.87, 1, 1.06}
		}
		if m.Collective == Broadcast { // in as many pieces as the program's
			return class{"namespaces, broadcasts", 0.98, 1.02, 1.02}
		}
		return class{"namespaces", 0.93, 1, 1.04}
	}
	logs, rows := map[class]float64{}, map[class]int{}
	for _, m := range Published() {
		p, err := m.Predict()
		if err != nil || m.Time <= 0 {
			t.Errorf("%+v: %v", m, err)
			continue
		}
		c, off := classOf(m), p.Time/m.Time
		if off < c.slowest || off > c.fastest {
			t.Errorf("%s: %s of %d bytes by %s took %g, predicted %g: off by more than the document admits", c.name, m.Collective, m.Bytes, m.Algorithm, m.Time, p.Time)
		}
		logs[c] += math.Log(off)
		rows[c]++
	}
	for c, sum := range logs {
		if mean := math.Exp(math.Abs(sum / float64(rows[c]))); mean > c.worst {
			t.Errorf("%s: predictions are off by %.3f in the mean of %d rows, the document has %g", c.name, mean, rows[c], c.worst)
		} else {
			t.Logf("%s: %.3f in the mean of %d rows", c.name, math.Exp(sum/float64(rows[c])), rows[c])
		}
	}
}
