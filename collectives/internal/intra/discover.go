package intra

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// algorithm is what a kernel, or copies, can do for one collective.
type algorithm struct {
	*engine.Algorithm
	*engine.Kernel
	traits choose.Traits
	window bool // needs the switch window
}

// site has the properties of a communicator on which the offer of algorithms depends.
type site struct {
	ranks   int
	host    bool
	noLines bool
	noFill  bool   // the device does not fill memory
	spare   uint64 // bytes of scratch that are the rank's own, because no lines are sent
	line    uint64 // bytes of a line in scratch; 0: on the host
}

// offered lists the algorithms of the kernels of transports, and those that are not for this site.
func offered(kernels []*engine.Kernel, at site) (list []*algorithm, unplaced []engine.Unplaced) {
	for _, k := range kernels {
		a := &algorithm{
			Algorithm: engine.New(k.Kind, k.Kernel.Algorithm), Kernel: k, traits: choose.TraitsOf(k.Kernel.Algorithm, k.Kind),
			window: slices.Contains(k.Channels, framework.KindSwitch),
		}
		if a.traits.Copies { // is made of other kernels
			continue
		}
		if reason := at.lacks(&a.traits, a.Name); reason != nil {
			unplaced = append(unplaced, engine.Unplaced{Collective: k.Kind, Name: a.Name, Reason: fmt.Errorf("%w: %w", framework.ErrUnsupported, reason)})
			continue
		}
		list = append(list, a)
	}
	return append(list, sharesToAll(list, at)...), unplaced
}

// leastToAll is the least spare memory with which pieces are worth their launches.
const leastToAll = 1 << 20

// sharesToAll is a reduce that only stores to peers, made of the kernel of such an all-reduce, where links carry loads at a lower rate.
// Ranks that are not the root have the sums in spare memory.
func sharesToAll(list []*algorithm, at site) []*algorithm {
	i := slices.IndexFunc(list, func(a *algorithm) bool { return a.Kind == collective.AllReduce && a.Name == choose.Shares })
	if i < 0 || at.spare < leastToAll {
		return nil
	}
	kernel := &engine.Kernel{Kernel: list[i].Kernel.Kernel, Kind: collective.Reduce}
	return []*algorithm{{
		Algorithm: engine.New(collective.Reduce, choose.SharesToAll), Kernel: kernel, traits: choose.TraitsOf(choose.SharesToAll, collective.Reduce),
	}}
}

// lacks says why an algorithm is not for this site; nil: it is.
func (at site) lacks(t *choose.Traits, name string) error {
	switch {
	case t.LL && at.ranks > kernelargs.LLRanks:
		return fmt.Errorf("it is for at most %d ranks that share memory, and there are %d", kernelargs.LLRanks, at.ranks)
	case t.LL && t.Protocol.Area == kernelargs.LineArea && at.noLines:
		return errors.New("a link between these GPUs does not keep stores of 128 bytes whole, or lines are switched off")
	case t.LL && t.Protocol.Area == kernelargs.LamportArea && at.noFill:
		return errors.New("the device cannot fill memory with what stands for no packet")
	case t.Ranks != 0 && t.Ranks != at.ranks:
		return fmt.Errorf("it is for %d ranks, and there are %d", t.Ranks, at.ranks)
	case name == choose.Pull && !at.host:
		return errors.New("it reads the memory of processes on the host")
	}
	return nil
}

// fits says why the algorithm cannot serve a call.
func (a *algorithm) fits(q *engine.Query, slots choose.Slots) error {
	t := &a.traits
	switch {
	case t.Reach&^q.Reached != 0:
		return fmt.Errorf("%w: algorithm %s needs registered buffers: use comm.Exchange", framework.ErrInvalid, a.Name)
	case t.LL && t.Protocol.Room(&q.Request) > t.Protocol.Of(slots):
		return fmt.Errorf("%w: algorithm %s takes what fits into a slot of %d bytes: %d bytes do not", framework.ErrUnsupported, a.Name, t.Protocol.Of(slots), q.Bytes)
	case t.Copies && q.NoCopies:
		return fmt.Errorf("%w: algorithm %s is not prepared", framework.ErrUnsupported, a.Name)
	case a.window && q.NoWindow:
		return fmt.Errorf("%w: algorithm %s has no window yet", framework.ErrUnsupported, a.Name)
	case t.Placed && q.NoPlace:
		return fmt.Errorf("%w: algorithm %s: the buffers cannot become a part of the window of the switch: expected memory from Alloc", framework.ErrUnsupported, a.Name)
	case t.OutOfPlace && q.InPlace:
		return fmt.Errorf("%w: algorithm %s does not work in place", framework.ErrUnsupported, a.Name)
	case q.Collective.Reduces() && len(a.Kernel.Types) > 0 && !slices.Contains(a.Kernel.Types, q.Type.String()):
		return fmt.Errorf("%w: algorithm %s does not reduce %v", framework.ErrUnsupported, a.Name, q.Type)
	case q.Collective.Reduces() && len(a.Kernel.Ops) > 0 && !slices.Contains(a.Kernel.Ops, q.Op.String()):
		return fmt.Errorf("%w: algorithm %s does not compute %v", framework.ErrUnsupported, a.Name, q.Op)
	}
	return nil
}

// lamport says whether an algorithm needs the area of packets without a flag.
func lamport(a *algorithm) bool {
	return a.traits.LL && a.traits.Protocol.Area == kernelargs.LamportArea
}
