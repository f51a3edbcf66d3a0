package simulate

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func cluster(t testing.TB, hosts int, pattern ...int) Cluster {
	t.Helper()
	c, err := NewCluster(hosts, pattern...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCluster(t *testing.T) {
	for _, c := range []struct {
		hosts   int
		pattern []int
		ranks   int
		kinds   int
		least   int
	}{
		{1, []int{2}, 2, 1, 2},
		{1024, []int{8}, 8192, 1, 8},
		{4, []int{8, 4}, 24, 2, 4},
		{5, []int{8, 4}, 32, 2, 4},
		{3, []int{8, 8, 2, 1}, 18, 2, 2}, // the fourth host is not there
		{4, []int{8, 8}, 32, 1, 8},
	} {
		on := cluster(t, c.hosts, c.pattern...)
		sum := 0
		for i := range on.Hosts() {
			sum += on.On(i)
		}
		if on.Ranks() != c.ranks || sum != c.ranks || len(on.kinds()) != c.kinds || on.least() != c.least || on.Even() != (c.kinds == 1) {
			t.Errorf("%d hosts of %v: %d ranks (host by host %d), %d kinds, %d at least: want %+v", c.hosts, c.pattern, on.Ranks(), sum, len(on.kinds()), on.least(), c)
		}
	}
}

func TestClusterRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		hosts   int
		pattern []int
	}{
		"0 hosts":                 {0, []int{8}},
		"ranks of 0 hosts":        {2, nil},
		"0 ranks on a host":       {2, []int{8, 0}},
		"1025 ranks on a host":    {2, []int{1025}},
		"1 ranks: expected 2":     {1, []int{1}},
		"2097152 ranks: expected": {1 << 18, []int{8}},
	} {
		if _, err := NewCluster(c.hosts, c.pattern...); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d hosts of %v: %v, want %q", c.hosts, c.pattern, err, want)
		}
	}
}

// A message is an overlap of two parts: counted one by one.
func TestCounterparts(t *testing.T) {
	for m := 1; m <= 12; m++ {
		for o := 1; o <= 12; o++ {
			overlaps := 0
			for i := range m {
				for j := range o {
					if max(i*o, j*m) < min((i+1)*o, (j+1)*m) {
						overlaps++
					}
				}
			}
			if got := counterparts(m, o) * float64(m); math.Abs(got-float64(overlaps)) > 1e-9 {
				t.Errorf("%d ranks to %d: %g messages, %d overlaps", m, o, got, overlaps)
			}
		}
	}
	on := cluster(t, 4, 8, 4) // 8 4 8 4: to one like itself and to two of the other kind
	if got := on.toAll(8); got != 1+2*1 {
		t.Errorf("a rank of 8 sends %g messages, want 3", got)
	}
	if got := on.toAll(4); got != 1+2*2 {
		t.Errorf("a rank of 4 sends %g messages, want 5", got)
	}
	if got := on.toOne(4); got != 2 {
		t.Errorf("a rank of 4 sends at most %g to one host, want 2", got)
	}
}

func TestNames(t *testing.T) {
	for _, c := range predicted {
		if got, err := ParseCollective(c.String()); err != nil || got != c {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	if got, err := ParseCollective("Reduce-Scatter"); err != nil || got != ReduceScatter {
		t.Errorf("%v, %v", got, err)
	}
	for a := range algorithms {
		if got, err := ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("%s: %v, %v", a, got, err)
		}
	}
	if _, err := ParseCollective("gather"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "allreduce, allgather") {
		t.Error(err)
	}
	if _, err := ParseAlgorithm("tree"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "flat-direct, flat-ring") {
		t.Error(err)
	}
}

func TestAlgorithms(t *testing.T) {
	even, uneven := cluster(t, 4, 8), cluster(t, 4, 8, 4)
	for _, c := range []Collective{AllReduce, AllGather, ReduceScatter, Broadcast} {
		if got := len(Algorithms(c, even)); got != int(algorithms) {
			t.Errorf("%s has %d algorithms, want all %d", c, got, algorithms)
		}
	}
	if got := uneven.copies(4); got != 2*2+1 {
		t.Errorf("a rank of 4 sends %g copies, want 5: two to each host of 8, one to the other of 4", got)
	}
	if got := uneven.copies(8); got != 3 {
		t.Errorf("a rank of 8 sends %g copies, want 3", got)
	}
	if a, b := len(Algorithms(AllToAll, even)), len(Algorithms(AllToAll, uneven)); a != 4 || b != 3 {
		t.Errorf("alltoall has %d and %d algorithms, want 4, and 3 where hosts differ", a, b)
	}
}
