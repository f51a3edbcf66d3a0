package placement

import (
	"slices"
	"testing"
)

// layouts are ranks by host: alike, of different sizes, dealt out in turns.
var layouts = [][][]int{
	{{0, 1}, {2, 3}},
	{{0}, {1, 2, 3}, {4, 5}},
	{{0, 3, 5}, {1, 4}, {2}},
	{{0}, {1}, {2}, {3}},
	{{4, 5, 6, 7}, {0, 1, 2, 3, 8}},
}

// each calls f for every rank of every layout.
func each(f func(hosts [][]int, p *Placement)) {
	for _, hosts := range layouts {
		for _, ranks := range hosts {
			for _, r := range ranks {
				f(hosts, New(hosts, r))
			}
		}
	}
}

// The sender and the receiver of the part of a host agree on it: a rank has its part of each other host from one
// rank, and that one sends it.
func TestCounterpartsAgree(t *testing.T) {
	each(func(hosts [][]int, p *Placement) {
		for g := range hosts {
			if g == p.Host {
				continue
			}
			var sends []int
			_ = New(hosts, p.Counterpart(g)).Counterparts(func(r int) error { sends = append(sends, r); return nil })
			if !slices.Contains(sends, p.Rank) {
				t.Errorf("%v: rank %d expects its part of host %d from rank %d, which sends to %v", hosts, p.Rank, g, p.Counterpart(g), sends)
			}
		}
	})
}

// A rank shares its elements of a vector with ranks of each other host, element by element, and these with it.
func TestOverlapsAgree(t *testing.T) {
	each(func(hosts [][]int, p *Placement) {
		for _, count := range []uint64{0, 1, 7, 60, 1001} {
			own := p.Mine(count)
			for g := range hosts {
				if g == p.Host {
					continue
				}
				at := own.From
				_ = p.Overlaps(count, g, func(s Span) error {
					theirs := New(hosts, s.Rank).Mine(count)
					if s.From != at || s.From < theirs.From || s.To > theirs.To || s.From >= s.To {
						t.Errorf("%v, %d elements: rank %d has %v from %d on, rank %d %v: expected the next that both have", hosts, count, p.Rank, s, at, s.Rank, theirs)
					}
					at = s.To
					return nil
				})
				if at != own.To {
					t.Errorf("%v, %d elements: rank %d of host %d shares up to %d with host %d, expected %d", hosts, count, p.Rank, p.Host, at, g, own.To)
				}
			}
		}
	})
}

// Runs, and rounds, have each rank of other hosts once, and no other.
func TestRunsAndRoundsHaveAllOthers(t *testing.T) {
	each(func(hosts [][]int, p *Placement) {
		var want, runs, rounds []int
		for r, local := range p.Local {
			if !local {
				want = append(want, r)
			}
		}
		for _, whole := range []bool{false, true} {
			runs = nil
			p.Runs(whole, func(first, n uint64) {
				for r := first; r < first+n; r++ {
					runs = append(runs, int(r))
				}
			})
			if !slices.Equal(runs, want) {
				t.Errorf("%v: runs for rank %d have %v, expected %v", hosts, p.Rank, runs, want)
			}
		}
		count := uint64(0)
		_ = p.Rounds(func(g, first int) error {
			count++
			rounds = append(rounds, hosts[g][first:min(first+p.Size(), len(hosts[g]))]...)
			return nil
		})
		slices.Sort(rounds)
		if !slices.Equal(rounds, want) || count != p.CountRounds() {
			t.Errorf("%v: %d rounds for rank %d have %v, expected %d with %v", hosts, count, p.Rank, rounds, p.CountRounds(), want)
		}
	})
}
