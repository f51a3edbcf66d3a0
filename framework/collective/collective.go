// Package collective has the names of the collectives, as configuration, command lines and
// results have them. Packages number those that they know in their own ways: as kernels do,
// or as a model does. The names are the same everywhere.
package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// The names.
const (
	AllReduce     = "allreduce"
	AllGather     = "allgather"
	ReduceScatter = "reducescatter"
	Broadcast     = "broadcast"
	Reduce        = "reduce"
	AllToAll      = "alltoall"
	AllToAllV     = "alltoallv"
	Gather        = "gather"
	Scatter       = "scatter"
	SendRecv      = "sendrecv"
	Barrier       = "barrier"
)

// Names lists all of them, in the order of the documentation.
func Names() []string {
	return []string{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, AllToAllV, Gather, Scatter, SendRecv, Barrier}
}

// Find returns which of the names somebody means. Case, '-' and '_' do not matter.
func Find(name string, names []string) (int, error) {
	plain := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	if i := slices.Index(names, plain); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("collective %q%s: expected one of %s", name, suggest.Hint(suggest.Name(plain, names)), strings.Join(names, ", "))
}
