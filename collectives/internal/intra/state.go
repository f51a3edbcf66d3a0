package intra

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/streamorder"
)

// Engine performs collectives.
type Engine struct {
	comm  *comm.Communicator
	opts  Options
	host  bool
	rows  []engine.Row
	basis string // the origin of the rows, in words

	list      []*algorithm
	unplaced  []engine.Unplaced
	byKey     []*algorithm // of the engine's algorithms, also of those that were withdrawn
	launcher  choose.Launcher
	copier    *copier // nil: there are no copies
	messenger messenger

	closed    bool
	memory    memory
	noWindow  error // why there is no window of a switch, once that is known: the same on all ranks
	board     board
	residents residents
	order     streamorder.Order
	trial     trial // of pull and stages
	watch     *watch
	planned   planned

	// The arguments of the next launch. They are part of the engine so that a call allocates nothing.
	args          kernelargs.Args
	ll            llKernels
	inSym, outSym *comm.Symmetric // which memory args.Inputs and Outputs describe
	places        places
}

// withdraw takes back the algorithms of a name.
func withdraw(e *Engine, name string, reason error) {
	e.list = slices.DeleteFunc(e.list, func(a *algorithm) bool {
		if a.Name != name {
			return false
		}
		e.unplaced = append(e.unplaced, engine.Unplaced{Collective: a.Algorithm.Collective, Name: name, Reason: reason})
		return true
	})
}

func public(list []*algorithm, which func(*algorithm) bool) (out []*engine.Algorithm) {
	for _, a := range list {
		if which(a) {
			out = append(out, a.Algorithm)
		}
	}
	return out
}

// name finds the name of an algorithm by its number.
func (e *Engine) name(k collective.Kind, id uint32) string {
	for _, a := range e.byKey {
		if a.Algorithm.Collective == k && a.ID == id {
			return a.Name
		}
	}
	return ""
}

func (e *Engine) copying() bool { return e.copier != nil && e.copier.used.Load() }

// Two ranks on a host hand large data over in one of two ways: through stages, which
// costs moving each line of memory between caches, or by reading each other's process
// with the help of the system, which costs a call and a look at every page. Which is
// faster, by two to five times, depends on how near their processors are, and a
// virtual machine does not say that truly. So the first call for which the built-in
// table has pull tries both.

// trial is what such a try has shown.
type trial uint8

const (
	untried trial = iota
	stagesWin
	pullWins
)
