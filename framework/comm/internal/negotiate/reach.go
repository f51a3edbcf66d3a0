package negotiate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/preamble"
)

// Names of the calls, which ranks tell each other.
const (
	OpReach      = "reach"
	OpReachPorts = "reach by ports"
	OpSurvey     = "survey"
	OpSwitch     = "switch channel"
	OpBind       = "bind to a switch"
)

// Reach says which ranks have memory channels with which others.
type Reach struct {
	// Apart says between which two ranks there is no link and why; nil: all ranks are
	// linked. Its class is ErrUnavailable or ErrUnsupported.
	Apart error

	// Groups are the sets of ranks that are all linked with each other, as a rule those
	// of one host: the ranks of each in ascending order, and the groups in the order of
	// their first rank. Nil if some rank is linked with two others that are not linked
	// with each other.
	Groups [][]int
}

// ReachAll links this rank with all others for memory channels where that is possible, and
// returns the same on all ranks.
func (n *Negotiator) ReachAll(ctx context.Context) (Reach, error) {
	if _, err := n.Rounds.Agree(ctx, OpReach, nil, nil); err != nil {
		return Reach{}, err
	}
	var mine missing
	for _, peer := range n.pairOrder() {
		_, err := n.MemoryLink(ctx, peer)
		var r *preamble.Refusal
		switch {
		case errors.As(err, &r): // the pair is in step, and goes on
			mine.add(peer, n.Boot.Size(), r.Err)
		case err != nil:
			return Reach{}, err
		}
	}
	said, err := n.Rounds.Agree(ctx, OpReach, mine.encode(), nil)
	if err != nil {
		return Reach{}, err
	}
	return reachOf(said)
}

// missing is what a rank has to say: whom it is not joined with, and why not with the
// first of them.
type missing struct {
	ranks []byte // a bit for each; empty: none is missing
	why   error
}

func (m *missing) add(peer, size int, why error) {
	if m.why == nil {
		m.ranks, m.why = make([]byte, (size+7)/8), why
	}
	m.ranks[peer/8] |= 1 << (peer % 8)
}

// encode gives the bits, a class, U for never and A for not here, and a text.
func (m *missing) encode() []byte {
	if m.why == nil {
		return nil
	}
	class, of := byte('A'), framework.ErrUnavailable
	if errors.Is(m.why, framework.ErrUnsupported) {
		class, of = 'U', framework.ErrUnsupported
	}
	why := strings.Replace(m.why.Error(), of.Error()+": ", "", 1) // the reader adds the class again
	return append(append(slices.Clone(m.ranks), class), why...)
}

// reachOf puts together what the ranks have said.
func reachOf(said [][]byte) (Reach, error) {
	n := len(said)
	bits := (n + 7) / 8
	var reach Reach
	for rank, s := range said {
		if len(s) == 0 {
			continue
		}
		if len(s) < bits+1 {
			return Reach{}, &framework.Error{Op: OpReach, Peer: rank, Err: fmt.Errorf("%w: %d bytes, expected %d or more", framework.ErrPeer, len(s), bits+1)}
		}
		if reach.Apart != nil {
			continue // the first is named
		}
		class := framework.ErrUnavailable
		if s[bits] == 'U' {
			class = framework.ErrUnsupported
		}
		reach.Apart = &framework.Error{Op: OpReach, Peer: rank, Err: fmt.Errorf("%w: %s", class, s[bits+1:])}
	}
	joined := func(a, b int) bool {
		lacks := func(a, b int) bool { return len(said[a]) > 0 && said[a][b/8]>>(b%8)&1 != 0 }
		return !lacks(a, b) && !lacks(b, a)
	}
	for r := range n {
		at := slices.IndexFunc(reach.Groups, func(g []int) bool { return joined(g[0], r) })
		if at < 0 {
			reach.Groups = append(reach.Groups, []int{r})
			continue
		}
		reach.Groups[at] = append(reach.Groups[at], r)
	}
	for _, g := range reach.Groups {
		for r := range n {
			for _, member := range g {
				if member != r && joined(member, r) != slices.Contains(g, r) {
					reach.Groups = nil
					return reach, nil
				}
			}
		}
	}
	return reach, nil
}
