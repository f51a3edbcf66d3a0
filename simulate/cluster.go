package simulate

import "fmt"

// Cluster is the number of ranks on each host.
type Cluster struct {
	pattern []int
	hosts   int
}

// MaxRanks bounds what is asked for; counts of bytes stay exact far below it.
const MaxRanks = 1 << 20

// NewCluster returns a cluster of that many hosts. Their numbers of ranks follow the
// pattern, which is repeated: [8] is eight everywhere, [8 4] is eight and four
// alternately.
func NewCluster(hosts int, pattern ...int) (Cluster, error) {
	if hosts < 1 || hosts > MaxRanks {
		return Cluster{}, fmt.Errorf("%d hosts: expected 1 to %d: %w", hosts, MaxRanks, ErrInvalid)
	}
	if len(pattern) == 0 || len(pattern) > 1024 {
		return Cluster{}, fmt.Errorf("ranks of %d hosts: expected those of 1 to 1024: %w", len(pattern), ErrInvalid)
	}
	for _, m := range pattern {
		if m < 1 || m > 1024 {
			return Cluster{}, fmt.Errorf("%d ranks on a host: expected 1 to 1024: %w", m, ErrInvalid)
		}
	}
	c := Cluster{pattern: append([]int(nil), pattern[:min(hosts, len(pattern))]...), hosts: hosts}
	if n := c.Ranks(); n < 2 || n > MaxRanks {
		return Cluster{}, fmt.Errorf("%d ranks: expected 2 to %d: %w", n, MaxRanks, ErrInvalid)
	}
	return c, nil
}

// Hosts returns the number of hosts.
func (c Cluster) Hosts() int { return c.hosts }

// On returns the number of ranks of host i.
func (c Cluster) On(i int) int { return c.pattern[i%len(c.pattern)] }

// Ranks returns the number of ranks of all hosts.
func (c Cluster) Ranks() int {
	n := 0
	for _, k := range c.kinds() {
		n += k.ranks * k.hosts
	}
	return n
}

// Even reports whether all hosts have the same number of ranks.
func (c Cluster) Even() bool { return len(c.kinds()) == 1 }

// kind is the hosts that have the same number of ranks.
type kind struct{ ranks, hosts int }

func (c Cluster) kinds() []kind {
	var all []kind
	for i, m := range c.pattern {
		hosts := c.hosts / len(c.pattern)
		if i < c.hosts%len(c.pattern) {
			hosts++
		}
		found := false
		for j := range all {
			if all[j].ranks == m {
				all[j].hosts += hosts
				found = true
			}
		}
		if !found {
			all = append(all, kind{m, hosts})
		}
	}
	return all
}

// least is the smallest number of ranks of a host.
func (c Cluster) least() int {
	m := c.pattern[0]
	for _, v := range c.pattern {
		m = min(m, v)
	}
	return m
}

// counterparts is how many messages a rank of a host with m ranks sends to host
// with o ranks in one exchange: each of both cuts the same vector in as many equal
// parts as it has ranks, and every overlap is a message. The ends of parts coincide
// gcd times, so there are m + o - gcd overlaps, shared by m ranks.
func counterparts(m, o int) float64 {
	return float64(m+o-gcd(m, o)) / float64(m)
}

// toAll is the sum of counterparts over all other hosts.
func (c Cluster) toAll(m int) float64 {
	sum := -counterparts(m, m)
	for _, k := range c.kinds() {
		sum += float64(k.hosts) * counterparts(m, k.ranks)
	}
	return sum
}

// copies is the most that a rank of a host with m ranks sends to all other hosts, if each
// of their ranks gets one from this host.
func (c Cluster) copies(m int) float64 {
	sum := -1
	for _, k := range c.kinds() {
		sum += k.hosts * ((k.ranks + m - 1) / m)
	}
	return float64(sum)
}

// toOne is the most of them for any other host.
func (c Cluster) toOne(m int) float64 {
	most := 0.0
	for _, k := range c.kinds() {
		if k.ranks != m || k.hosts > 1 {
			most = max(most, counterparts(m, k.ranks))
		}
	}
	return most
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
