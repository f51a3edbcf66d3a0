package intra

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

const (
	trialBytes  = 128 << 10 // of a rank: in their private caches for both ways
	trialRounds = 5         // the first loads and touches
)

// try performs all-gathers both ways, and lets the faster one have what comes. The
// slower of the ranks counts, so that all of them decide alike.
func (e *Engine) try() error {
	candidates := [...]string{choose.Pull, choose.Chunk}
	best := [len(candidates)]uint64{math.MaxUint64, math.MaxUint64}
	in, out := make([]byte, trialBytes), make([]byte, e.comm.Size()*trialBytes)
	for range trialRounds {
		for i, candidate := range candidates {
			began := time.Now()
			if err := e.gatherBy(candidate, in, out); err != nil {
				return err
			}
			best[i] = min(best[i], uint64(time.Since(began)))
		}
	}
	mine, all := make([]byte, 8*len(candidates)), make([]byte, e.comm.Size()*8*len(candidates))
	for i, t := range best {
		binary.LittleEndian.PutUint64(mine[8*i:], t)
	}
	if err := e.gatherBy(choose.Chunk, mine, all); err != nil {
		return err
	}
	var slowest [len(candidates)]uint64
	for k := range e.comm.Size() * len(candidates) {
		slowest[k%len(candidates)] = max(slowest[k%len(candidates)], binary.LittleEndian.Uint64(all[8*k:]))
	}
	e.trial = pullWins
	if slowest[1] < slowest[0] {
		e.trial = stagesWin
		for _, a := range e.list {
			if a.Name == choose.Pull {
				a.Beaten.Store(true)
			}
		}
	}
	e.comm.Log().Debug("two ways for large data between two ranks were tried",
		"bytes", trialBytes, "pull", time.Duration(slowest[0]), "stages", time.Duration(slowest[1]))
	return nil
}

// gatherBy is an all-gather by a named algorithm.
func (e *Engine) gatherBy(name string, in, out []byte) error {
	i := slices.IndexFunc(e.list, func(a *algorithm) bool { return a.Name == name && a.Algorithm.Collective == collective.AllGather })
	if i < 0 {
		return fmt.Errorf("%w: no transport has a kernel for %v by %s", framework.ErrUnavailable, collective.AllGather, name)
	}
	a := e.list[i]
	c := &engine.Call{Input: unsafe.Pointer(&in[0]), Output: unsafe.Pointer(&out[0]), Algorithm: a.Algorithm, Named: true}
	c.Request = engine.Request{Collective: collective.AllGather, Bytes: uint64(len(out)), Count: uint64(len(in)), Type: kernel.Uint8, Ranks: e.comm.Size(), Device: "host"}
	if _, err := e.ready(a, c); err != nil {
		return err
	}
	c.Launch = a.Shape(&c.Query, nil)
	return e.Run(c)
}
