// Package coverage says which calls the kernels of transports serve, and which are left for port channels.
package coverage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// covered is a collective for which transports have kernels over shared memory. SendRecv stands for all messages.
type covered struct {
	collective collective.Kind
	calls      []string // those that are served whatever their size and their buffers; nil: all
}

func (x covered) inPart() bool { return x.calls != nil }

// List is of the collectives with kernels: the same on all ranks, since engines are chosen by it.
type List []covered

// Of returns the collectives that the kernels of all transports cover.
func Of(c *comm.Communicator) (list List) {
	found := engine.Discover(c.Kernels(), min(c.Size(), kernelargs.MaxRanks)) // more of them count as several hosts
	for k := collective.AllReduce; k < collective.AllToAllV; k++ {
		of := slices.DeleteFunc(slices.Clone(found.Collectives), func(x *engine.Kernel) bool { return x.Kind != k })
		if len(of) > 0 {
			list = append(list, covered{k, callsOf(k, of)})
		}
	}
	if len(found.Messages) > 0 {
		list = append(list, covered{collective.SendRecv, nil})
	}
	return list
}

// callsOf describes the calls of a collective that kernels serve, nil if these are all.
func callsOf(k collective.Kind, of []*engine.Kernel) []string {
	of = slices.DeleteFunc(slices.Clone(of), func(x *engine.Kernel) bool {
		t := choose.TraitsOf(x.Algorithm, k)
		return t.LL || t.Reach != 0 || t.OutOfPlace || t.Copies || t.Ranks != 0
	})
	calls := []string{}
	if !k.Reduces() {
		if len(of) > 0 {
			return nil
		}
		return calls
	}
	all := true
	for t := range kernel.DataType(kernel.DataTypes) {
		var ops []string
		for op := range kernel.Op(kernel.Ops) {
			serves := func(x *engine.Kernel) bool { return among(x.Types, t.String()) && among(x.Ops, op.String()) }
			if slices.ContainsFunc(of, serves) {
				ops = append(ops, op.String())
			}
		}
		all = all && len(ops) == kernel.Ops
		if len(ops) > 0 {
			calls = append(calls, t.String()+": "+strings.Join(ops, " "))
		}
	}
	if all {
		return nil
	}
	return calls
}

// among reports whether a name is in a list that has all if it is empty.
func among(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

// String has the collectives, and behind one that is served in part its calls.
func (l List) String() string {
	var words []string
	for _, x := range l {
		word := x.collective.String()
		if x.inPart() {
			word += fmt.Sprintf("(%s)", strings.Join(x.calls, ", "))
		}
		words = append(words, word)
	}
	return fmt.Sprint(words)
}

// Remainder has the collectives that kernels leave for port channels.
type Remainder struct {
	Whole  []collective.Kind // that have no kernels
	InPart []collective.Kind // those with kernels that do not serve all calls
}

// Kinds are all of them.
func (r Remainder) Kinds() []collective.Kind { return slices.Concat(r.Whole, r.InPart) }

// Left returns the collectives that no kernel of a transport covers.
func Left(c *comm.Communicator) (r Remainder) {
	covers := Of(c)
	for k := collective.AllReduce; k < collective.Kinds; k++ {
		i := slices.IndexFunc(covers, func(x covered) bool { return x.collective == k })
		switch {
		case k >= collective.AllToAllV && k != collective.SendRecv:
		case i < 0:
			r.Whole = append(r.Whole, k)
		case covers[i].inPart():
			r.InPart = append(r.InPart, k)
		}
	}
	return r
}
