package collectives

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/placement"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// mostTogether is how many ranks that share memory are not divided; tests have fewer.
var mostTogether = kernelargs.MaxRanks

// tooMany reports whether more ranks of one host share memory than one launch of a kernel
// can address. The host then counts as several small ones: calls have two levels, and port
// channels join its parts. All ranks come to the same answer.
func tooMany(c *comm.Communicator) bool {
	if c.Size() <= mostTogether || c.Device().Info().Device != framework.Host {
		return false
	}
	for r := range c.Size() {
		if c.HostOf(r) != c.HostOf(0) {
			return false
		}
	}
	return true
}

// dividedHost says that the parts of a large host do not share memory.
func dividedHost(size int) comm.Reach {
	all := make([]int, size)
	for r := range all {
		all[r] = r
	}
	return comm.Reach{
		Apart:  fmt.Errorf("%w: %d ranks are on one host, and kernels address at most %d", framework.ErrUnsupported, size, mostTogether),
		Groups: divided(all, mostTogether),
	}
}

// divided splits ranks into parts of at most most ranks: into equal ones if that is
// possible, since a rank then exchanges with one rank of each other part. A rank is linked
// with all ranks of its part, and twice with its counterpart in each other one; of all
// divisors the one with the fewest links is taken.
func divided(ranks []int, most int) [][]int {
	n, fewest := (len(ranks)+most-1)/most, 0
	for size := 2; size <= most && size < len(ranks); size++ {
		if links := size + 2*len(ranks)/size; len(ranks)%size == 0 && (fewest == 0 || links < fewest) {
			n, fewest = len(ranks)/size, links
		}
	}
	var out [][]int
	for i := range n {
		out = append(out, ranks[i*len(ranks)/n:(i+1)*len(ranks)/n])
	}
	return out
}

// counterparts are the ranks with this rank's number in the other parts, which is all that
// calls in two levels need; nil if parts differ, and any two ranks may have to talk.
func counterparts(groups [][]int, rank int) func(int) bool {
	for _, g := range groups {
		if len(g) != len(groups[0]) {
			return nil
		}
	}
	at := placement.New(groups, rank)
	return func(other int) bool {
		host, index := at.Find(other)
		return host != at.Host && index == at.Index
	}
}
