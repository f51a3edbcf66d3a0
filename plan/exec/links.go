package exec

import "github.com/mscclpp-go/mscclpp/plan/schema"

// links are the peers of a rank's memory channels, by number: those of the plan, and behind them its port channels to itself.
func links(g *schema.GPU) []int {
	out := g.Peers(schema.Memory)
	for _, peer := range g.Peers(schema.Port) {
		if peer == g.ID {
			out = append(out, peer)
		}
	}
	return out
}

func positions(list []int, of int) (out []int) {
	for i, x := range list {
		if x == of {
			out = append(out, i)
		}
	}
	return out
}
