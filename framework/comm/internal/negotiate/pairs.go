package negotiate

import (
	"context"
	"errors"

	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// LinkAll links this rank with all others for memory channels, and makes their semaphore
// counters addressable. It returns the links by rank.
func (n *Negotiator) LinkAll(ctx context.Context) (map[int]*Link, error) {
	all := make(map[int]*Link)
	for _, peer := range n.pairOrder() {
		l, err := n.MemoryLink(ctx, peer)
		var r *preamble.Refusal
		if errors.As(err, &r) {
			return nil, r.Err // this pair is in step, but others wait for both
		}
		if err != nil {
			return nil, err
		}
		all[peer] = l
	}
	return all, nil
}

// pairOrder lists the other ranks so that, step by step, whole pairs meet: a round-robin
// tournament. In plain ascending order rank 0 would be the first of all, and set-up would take as
// many steps as there are pairs.
func (n *Negotiator) pairOrder() []int {
	size := n.Boot.Size()
	if size%2 == 1 {
		size++ // with an odd number one sits out each round
	}
	var order []int
	for round := range size - 1 {
		if p := tournament(n.Boot.Rank(), round, size); p < n.Boot.Size() && p != n.Boot.Rank() {
			order = append(order, p)
		}
	}
	return order
}

// tournament returns whom player meets in a round of the circle method with n
// players, n even.
func tournament(player, round, n int) int {
	last := n - 1
	switch {
	case player == last:
		// The fixed player meets the one whose double is the round.
		for p := range last {
			if (2*p)%last == round%last {
				return p
			}
		}
	case (2*player)%last == round%last:
		return last
	}
	return ((round-player)%last + last) % last
}

// Others lists all ranks but this one, ascending.
func (n *Negotiator) Others() []int {
	others := make([]int, 0, n.Boot.Size())
	for r := range n.Boot.Size() {
		if r != n.Boot.Rank() {
			others = append(others, r)
		}
	}
	return others
}
