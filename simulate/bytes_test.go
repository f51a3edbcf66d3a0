package simulate

import (
	"fmt"
	"math"
	"testing"
)

// size is divisible by all that the clusters of these tests divide it by.
const size = 1 << 10 * 720720

// traffic is an algorithm written down message by message, rank by rank, without the
// planner: what each rank sends and receives on its link and over the network.
type traffic struct {
	on       Cluster
	host     []int // of each rank
	index    []int // of each rank on its host
	sent     [2][]float64
	received [2][]float64
	count    []float64 // messages over the network
}

func newTraffic(on Cluster) *traffic {
	t := &traffic{on: on}
	for h := range on.Hosts() {
		for i := range on.On(h) {
			t.host, t.index = append(t.host, h), append(t.index, i)
		}
	}
	for i := range 2 {
		t.sent[i], t.received[i] = make([]float64, len(t.host)), make([]float64, len(t.host))
	}
	t.count = make([]float64, len(t.host))
	return t
}

func (t *traffic) rank(host, index int) int {
	for r := range t.host {
		if t.host[r] == host && t.index[r] == index {
			return r
		}
	}
	panic("no such rank")
}

func (t *traffic) send(from, to int, bytes float64) {
	level := 0
	if t.host[from] != t.host[to] {
		level = 1
		t.count[from]++
	}
	t.sent[level][from] += bytes
	t.received[level][to] += bytes
}

// all has every rank send so much to every other.
func (t *traffic) all(bytes float64) {
	for a := range t.host {
		for b := range t.host {
			if a != b {
				t.send(a, b, bytes)
			}
		}
	}
}

// inside has every rank send its share of bytes to every other rank of its host.
func (t *traffic) inside(bytes float64) {
	for a := range t.host {
		for b := range t.host {
			if a != b && t.host[a] == t.host[b] {
				t.send(a, b, bytes/float64(t.on.On(t.host[a])))
			}
		}
	}
}

// exchange sends bytes from one host to another. Both cut them in as many equal parts
// as they have ranks, and every overlap is a message.
func (t *traffic) exchange(from, to int, bytes float64) {
	m, o := t.on.On(from), t.on.On(to)
	for i := range m {
		for j := range o {
			if common := min((i+1)*o, (j+1)*m) - max(i*o, j*m); common > 0 {
				t.send(t.rank(from, i), t.rank(to, j), bytes*float64(common)/float64(m*o))
			}
		}
	}
}

// exchanges has every host send something to every other.
func (t *traffic) exchanges(bytes func(from, to int) float64) {
	for a := range t.on.Hosts() {
		for b := range t.on.Hosts() {
			if a != b {
				t.exchange(a, b, bytes(a, b))
			}
		}
	}
}

// between sends, for each of the ways that an algorithm has between hosts.
func (t *traffic) between(a Algorithm, c Collective) {
	h, n := t.on.Hosts(), float64(len(t.host))
	ranks := func(host int) float64 { return float64(t.on.On(host)) }
	switch {
	case a == LargeRing:
		for range h - 1 {
			for from := range h {
				t.exchange(from, (from+1)%h, size/float64(h))
			}
		}
	case a == LargeDoubling && c == AllToAll:
		for distance := 1; distance < h; distance *= 2 {
			for from := range h {
				for level := range h {
					if level&distance != 0 {
						t.exchange(from, (from+distance)%h, size/float64(h)*ranks(from))
					}
				}
			}
		}
	case a == LargeDoubling:
		for distance := 1; distance < h; distance *= 2 {
			for from := range h {
				t.exchange(from, (from+distance)%h, size/float64(h)*float64(min(distance, h-distance)))
			}
		}
	case c == AllGather:
		t.exchanges(func(from, _ int) float64 { return size / n * ranks(from) })
	case c == ReduceScatter:
		t.exchanges(func(_, to int) float64 { return size / n * ranks(to) })
	case c == AllToAll:
		t.exchanges(func(from, to int) float64 { return size / n * ranks(from) * ranks(to) })
	}
}

// whole has every rank of a host get what the host has, and then give it, or what the
// other needs of it, to the rank with its number on every other host.
func (t *traffic) whole(c Collective) {
	n := float64(len(t.host))
	for a := range t.host {
		m := float64(t.on.On(t.host[a]))
		for b := range t.host {
			inside, outside := float64(size), float64(size)
			switch c {
			case AllGather:
				inside, outside = size/n, size/n*m
			case ReduceScatter:
				outside = size / n
			}
			if a != b && t.host[a] == t.host[b] {
				t.send(a, b, inside)
			} else if a != b && t.index[a] == t.index[b]%t.on.On(t.host[a]) {
				t.send(a, b, outside)
			}
		}
	}
}

// bundles has every rank of a host get what the host has for the ranks with its number
// elsewhere, as much as the first of them, and for itself; and send it to each of those.
func (t *traffic) bundles() {
	n := float64(len(t.host))
	for a := range t.host {
		m, most := t.on.On(t.host[a]), 1 // parts
		for b := range t.host {
			if t.host[b] == t.host[a] {
				continue
			}
			if t.index[b]%m == 0 {
				most++
			}
			if t.index[b]%m == t.index[a] {
				t.send(a, b, size/n*float64(m))
			}
		}
		for b := range t.host {
			if a != b && t.host[a] == t.host[b] {
				t.send(a, b, size/n*float64(most))
			}
		}
	}
}

// enumerate writes an algorithm down.
func enumerate(on Cluster, c Collective, a Algorithm) *traffic {
	t := newTraffic(on)
	n := float64(len(t.host))
	switch a {
	case FlatDirect:
		t.all(size / n)
		if c == AllReduce {
			t.all(size / n)
		}
		return t
	case FlatRing:
		laps := 1
		if c == AllReduce {
			laps = 2
		}
		m, h := on.On(0), on.Hosts()
		for ring := range m {
			for range laps * (len(t.host) - 1) {
				for host := range h {
					for j := range m { // the ring leaves each host by the rank of its own number
						from, to := t.rank(host, (ring+1+j)%m), t.rank((host+1)%h, (ring+1)%m)
						if j < m-1 {
							to = t.rank(host, (ring+2+j)%m)
						}
						t.send(from, to, size/n/float64(m))
					}
				}
			}
		}
		return t
	case SmallWhole:
		t.whole(c)
		return t
	}
	if a == Small && c == AllToAll {
		t.bundles()
		return t
	}
	t.inside(size)
	switch {
	case c == AllReduce && (a == Small || a == LargeDirect && on.Hosts() == 2):
		t.exchanges(func(int, int) float64 { return size })
		t.inside(size)
	case c == AllReduce:
		t.between(a, ReduceScatter)
		t.between(a, AllGather)
		t.inside(size)
	default:
		t.between(a, c)
	}
	if c == AllToAll && !on.Even() {
		for r := range t.host { // sharing out what came from other hosts
			m := float64(on.On(t.host[r]))
			for b := range t.host {
				if b != r && t.host[b] == t.host[r] {
					t.send(r, b, size*(n-m)/n/m)
				}
			}
		}
	}
	return t
}

// Every byte that is enumerated is in the prediction, and none beside.
func TestBytesAgainstMessages(t *testing.T) {
	machine := Machines()[0]
	machine.NetworkPacketFactor = 1.5 // so that it is not taken for another one
	cases := 0
	for _, on := range []Cluster{
		cluster(t, 2, 1), cluster(t, 2, 8), cluster(t, 3, 4), cluster(t, 5, 2), cluster(t, 8, 2), cluster(t, 7, 3), cluster(t, 1, 4),
		cluster(t, 2, 8, 4), cluster(t, 3, 2, 6, 3), cluster(t, 4, 4, 1),
	} {
		for _, c := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
			for _, a := range Algorithms(c, on) {
				if !on.Even() && (a == FlatRing || a == LargeRing || a == LargeDoubling) {
					continue // means over hosts of different sizes
				}
				for _, pieces := range []int{1, 4} {
					name := fmt.Sprintf("%s by %s, %d hosts of %v, %d pieces", c, a, on.hosts, on.pattern, pieces)
					p, err := Predict(Question{Machine: machine, Cluster: on, Collective: c, Algorithm: a, Bytes: size, Pieces: pieces})
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					check(t, name, enumerate(on, c, a), p)
					cases++
				}
			}
		}
	}
	if cases < 200 {
		t.Errorf("only %d cases", cases)
	}
}

func check(t *testing.T, name string, want *traffic, p Prediction) {
	t.Helper()
	factor, between := 1.0, 1.0
	if p.Algorithm == Small || p.Algorithm == SmallWhole {
		factor, between = p.Machine.PacketFactor, p.Machine.NetworkPacketFactor
	}
	messages := 0.0
	var most [2]float64
	for level := range 2 {
		sent, received := 0.0, 0.0
		for r := range want.host {
			most[level] = max(most[level], want.sent[level][r])
			sent, received = sent+want.sent[level][r], received+want.received[level][r]
			messages = max(messages, want.count[r])
		}
		if math.Abs(sent-received) > 1e-6*sent {
			t.Errorf("%s: %g bytes sent and %g received", name, sent, received)
		}
	}
	const rounding = 1e-12
	if got, want := p.LinkBytes, most[0]*factor; math.Abs(got-want) > rounding*want {
		t.Errorf("%s: %g bytes on a link, enumerated %g", name, got, want)
	}
	if got, want := p.NetworkBytes, most[1]*between; math.Abs(got-want) > rounding*want {
		t.Errorf("%s: %g bytes over the network, enumerated %g", name, got, want)
	}
	steps := float64(p.Pieces)
	if p.Algorithm == LargeDoubling && p.Collective == AllToAll {
		messages = p.NetworkMessages // enumerated block by block, sent in one message a step
		steps = 1
	}
	if p.Algorithm != FlatRing && p.Cluster.Even() && math.Abs(p.NetworkMessages-messages*steps) > 1e-9 {
		t.Errorf("%s: %g messages, enumerated %g", name, p.NetworkMessages, messages*steps)
	}
}

// The formulas of docs/scaling.md, for h hosts of m ranks.
func TestBytesAgainstFormulas(t *testing.T) {
	type formula func(h, m float64) (link, network float64)
	double := func(f formula) formula {
		return func(h, m float64) (float64, float64) { l, n := f(h, m); return 2 * l, 2 * n }
	}
	packets := func(f formula) formula { // flags are half of what is stored, and next to nothing of what is sent
		return func(h, m float64) (float64, float64) { l, n := f(h, m); return 2 * l, n }
	}
	part := func(h, m float64) (float64, float64) { return (m - 1) / m, (h - 1) / (h * m) }
	flat := func(h, m float64) (float64, float64) { return (m - 1) / (h * m), (h*m - m) / (h * m) }
	ring := func(h, m float64) (float64, float64) {
		return (h*m - 1) / (h * m) * (m - 1) / m, (h*m - 1) / (h * m) / m
	}
	away := func(h, m float64) (float64, float64) { return 2 * (m - 1) / m, (h - 1) / m }
	for _, f := range []struct {
		c Collective
		a Algorithm
		f formula
	}{
		{AllReduce, SmallWhole, func(h, m float64) (float64, float64) { return 2 * (m - 1), h - 1 }},
		{AllGather, SmallWhole, func(h, m float64) (float64, float64) { return 2 * (m - 1) / (h * m), (h - 1) / h }},
		{ReduceScatter, SmallWhole, func(h, m float64) (float64, float64) { return 2 * (m - 1), (h - 1) / (h * m) }},
		{Broadcast, SmallWhole, func(h, m float64) (float64, float64) { return 2 * (m - 1), h - 1 }},
		{AllReduce, Small, func(h, m float64) (float64, float64) { return 4 * (m - 1) / m, (h - 1) / m }},
		{AllReduce, LargeDirect, double(part)}, {AllReduce, LargeRing, double(part)}, {AllReduce, LargeDoubling, double(part)},
		{AllReduce, FlatDirect, double(flat)}, {AllReduce, FlatRing, double(ring)},
		{AllGather, Small, packets(part)}, {AllGather, LargeDirect, part}, {AllGather, LargeRing, part}, {AllGather, LargeDoubling, part},
		{AllGather, FlatDirect, flat}, {AllGather, FlatRing, ring},
		{ReduceScatter, Small, packets(part)}, {ReduceScatter, LargeDirect, part}, {ReduceScatter, LargeDoubling, part},
		{ReduceScatter, FlatDirect, flat}, {ReduceScatter, FlatRing, ring},
		{AllToAll, FlatDirect, flat},
		{AllToAll, LargeDirect, func(h, m float64) (float64, float64) { return (m - 1) / m, (h - 1) / h }},
		{AllToAll, Small, func(h, m float64) (float64, float64) { return 2 * (m - 1) / m, (h - 1) / h }},
		{Broadcast, Small, packets(away)}, {Broadcast, FlatDirect, double(flat)},
		{Broadcast, LargeDirect, func(_, m float64) (float64, float64) { return 2 * (m - 1) / m, 1 / m }},
		{Broadcast, LargeRing, func(_, m float64) (float64, float64) { return 2 * (m - 1) / m, 1 / m }},
		{Broadcast, LargeDoubling, func(h, m float64) (float64, float64) { return 2 * (m - 1) / m, math.Ceil(math.Log2(h)) / m }},
	} {
		for _, h := range []int{2, 4, 16, 128, 1024} {
			for _, m := range []int{2, 4, 8} {
				p, err := Predict(Question{Machine: Machines()[0], Cluster: cluster(t, h, m), Collective: f.c, Algorithm: f.a, Bytes: 1 << 40, Pieces: 2})
				if err != nil {
					t.Fatal(err)
				}
				link, network := f.f(float64(h), float64(m))
				if math.Abs(p.LinkBytes/(1<<40)-link) > 1e-12*(1+link) || math.Abs(p.NetworkBytes/(1<<40)-network) > 1e-12*(1+network) {
					t.Errorf("%s by %s, %d x %d: %g and %g of the bytes, by formula %g and %g",
						f.c, f.a, h, m, p.LinkBytes/(1<<40), p.NetworkBytes/(1<<40), link, network)
				}
			}
		}
	}
}

// After the steps of distance 1, 2, 4, … every host has what every host had, however
// many there are, and nothing came twice.
func TestDoublingsReachEverybody(t *testing.T) {
	for h := 2; h <= 70; h++ {
		on := cluster(t, h, 1)
		have := make([]map[int]bool, h)
		order := make([][]int, h) // in the order of arrival: the own, the next's, …
		for i := range have {
			have[i], order[i] = map[int]bool{i: true}, []int{i}
		}
		distance := 1
		for _, blocks := range (planner{on: on, m: 1}).doublings() {
			next := make([][]int, h)
			for i := range have {
				next[(i-distance+h)%h] = order[i][:blocks]
			}
			for i, got := range next {
				for _, b := range got {
					if have[i][b] {
						t.Fatalf("%d hosts: host %d gets block %d twice", h, i, b)
					}
					have[i][b] = true
				}
				order[i] = append(order[i], got...)
			}
			distance *= 2
		}
		for i := range have {
			if len(have[i]) != h {
				t.Fatalf("%d hosts: host %d has %d blocks", h, i, len(have[i]))
			}
		}
	}
}
