package crosshost

import (
	"fmt"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
)

// seenBy is the exchange as rank i of host g sees it.
func seenBy(hosts [][]int, g, i int) *Level {
	return &Level{Sizes: Sizes{Placement: placement.New(hosts, hosts[g][i])}}
}

// ranksOf makes hosts with so many ranks, dealt out in turns where that is possible.
func ranksOf(sizes ...int) [][]int {
	hosts, rank := make([][]int, len(sizes)), 0
	for i := 0; ; i++ {
		dealt := false
		for g, n := range sizes {
			if i < n {
				hosts[g], rank, dealt = append(hosts[g], rank), rank+1, true
			}
		}
		if !dealt {
			return hosts
		}
	}
}

// Of each element every host has one rank that sends it to the reducing rank, which gets it once
// from each host; both ends count the same bytes; and the work is spread.
func TestSlices(t *testing.T) {
	const element = 1
	for _, sizes := range [][]int{{2, 2, 2}, {1, 3, 2}, {4, 1, 1, 3}, {5, 7, 11}, {8, 8, 4}, {31, 32, 33}} {
		hosts := ranksOf(sizes...)
		for _, count := range []uint64{1, 2, 17, 420, 1000, 4096} {
			type message struct{ from, to int }
			sent, due := map[message]uint64{}, map[message]uint64{}
			reduced := make([]int, count) // how often, by whomever
			work := map[int]uint64{}
			for g, ranks := range hosts {
				for i, rank := range ranks {
					h := seenBy(hosts, g, i)
					own := h.Mine(count)
					x := &Piece{Count: count, Share: make([]byte, own.To-own.From)}
					for k := range x.Share {
						x.Share[k] = byte(own.From + uint64(k))
					}
					for to := range hosts {
						h.cut(x, to, own, func(from, end uint64) {
							for e := from; e < end && to == g; e++ {
								reduced[e]++
								work[rank]++
							}
						})
						var room Space
						packed := h.pack(x, element, to, &room)
						back := &Piece{Count: count, Share: make([]byte, len(x.Share))}
						h.unpack(back, element, to, own, packed)
						h.cut(x, to, own, func(from, end uint64) {
							for e := from; e < end; e++ {
								if back.Share[e-own.From] != byte(e) {
									t.Fatalf("%v, %d elements: element %d of rank %d is %d after packing, expected %d", sizes, count, e, rank, back.Share[e-own.From], byte(e))
								}
							}
						})
						if to == g {
							for other := range hosts {
								if other != g {
									_ = h.common(x, element, other, g, func(s placement.Span, from, end uint64) error {
										due[message{s.Rank, rank}] += end - from
										return nil
									})
								}
							}
							continue
						}
						_ = h.common(x, element, to, to, func(s placement.Span, from, end uint64) error {
							if end > uint64(len(packed)) {
								t.Fatalf("%v, %d elements: rank %d sends bytes %d to %d of %d", sizes, count, rank, from, end, len(packed))
							}
							sent[message{rank, s.Rank}] += end - from
							return nil
						})
					}
				}
			}
			if fmt.Sprint(sent) != fmt.Sprint(due) {
				t.Errorf("%v, %d elements: sent %v, expected by the other end %v", sizes, count, sent, due)
			}
			for e, n := range reduced {
				if n != 1 {
					t.Fatalf("%v, %d elements: element %d is reduced by %d ranks", sizes, count, e, n)
				}
			}
			each := float64(count) / float64(len(work))
			for rank, n := range work {
				if count == 4096 && len(hosts) < 4 && (float64(n) > 1.6*each+32 || float64(n) < each/2-32) {
					t.Errorf("%v, %d elements: rank %d reduces %d, expected about %.0f", sizes, count, rank, n, each)
				}
			}
		}
	}
}

// With a root its host has no slices, the others have all, and both ends of each step count the
// same bytes. Each of the others gets from the root's host what it passes on, and from the rest what it lacks.
func TestSlicesOfRoots(t *testing.T) {
	const element, count = 1, 1000
	for _, sizes := range [][]int{{2, 2, 2}, {1, 3, 2}, {4, 1, 1, 3}, {5, 7, 11}} {
		hosts := ranksOf(sizes...)
		for home := range hosts {
			type message struct{ from, to int }
			sent, due := map[message]uint64{}, map[message]uint64{}
			for g, ranks := range hosts {
				for i, rank := range ranks {
					h := seenBy(hosts, g, i)
					x := &Piece{Direction: Direction{Rooted: true, Gives: true, Home: home}, Count: count}
					if _, _, size := h.slice(x, home); size != 0 {
						t.Fatalf("%v, root on host %d: it has slices of %d elements, expected none", sizes, home, size)
					}
					has := make([]int, count) // how often this rank gets an element of its share
					for to := range hosts {
						if to == g {
							continue
						}
						if g == home || to != home { // the slices that this host sends to that
							slices := g
							if g == home {
								slices = to
							}
							_ = h.common(x, element, to, slices, func(s placement.Span, from, end uint64) error {
								sent[message{rank, s.Rank}] += end - from
								return nil
							})
						}
						if g != home { // and what it gets
							slices := to
							if to == home {
								slices = g
							}
							_ = h.common(x, element, to, slices, func(s placement.Span, from, end uint64) error {
								due[message{s.Rank, rank}] += end - from
								h.cut(x, slices, s, func(from, to uint64) {
									for e := from; e < to; e++ {
										has[e]++
									}
								})
								return nil
							})
						}
					}
					own := h.Mine(count)
					for e := own.From; e < own.To && g != home; e++ {
						if has[e] != 1 {
							t.Fatalf("%v, root on host %d: rank %d gets element %d %d times", sizes, home, rank, e, has[e])
						}
					}
				}
			}
			if fmt.Sprint(sent) != fmt.Sprint(due) {
				t.Errorf("%v, root on host %d: sent %v, expected by the other end %v", sizes, home, sent, due)
			}
		}
	}
}
