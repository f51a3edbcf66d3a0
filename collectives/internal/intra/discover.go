package intra

import (
	"fmt"
	"slices"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework"
)

// algorithm is what a kernel, or copies, can do for one collective.
type algorithm struct {
	*engine.Algorithm
	*engine.Kernel
	traits choose.Traits
	window bool // needs the switch window
}

// offered lists the algorithms of the kernels of transports.
func offered(kernels []*engine.Kernel, ranks int, noLines bool) (list []*algorithm) {
	for _, k := range kernels {
		a := &algorithm{
			Algorithm: engine.New(k.Kind, k.Kernel.Algorithm), Kernel: k, traits: choose.TraitsOf(k.Kernel.Algorithm, k.Kind),
			window: slices.Contains(k.Channels, framework.KindSwitch),
		}
		t := &a.traits
		switch {
		case t.Copies: // is made of other kernels
		case t.LL && (ranks > kernelargs.LLRanks || noLines && t.Protocol.Area == kernelargs.LineArea):
		case t.Ranks != 0 && t.Ranks != ranks:
		default:
			list = append(list, a)
		}
	}
	return list
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

// lamport says whether a kernel needs the area of packets without a flag.
func lamport(k *engine.Kernel) bool {
	t := choose.TraitsOf(k.Kernel.Algorithm, k.Kind)
	return t.LL && t.Protocol.Area == kernelargs.LamportArea
}
