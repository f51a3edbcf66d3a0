package collectives

import (
	"encoding/binary"
	"math"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

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

const (
	trialBytes  = 128 << 10 // of a rank: in their private caches for both ways
	trialRounds = 5         // the first loads and touches
)

// tries says whether a call has to wait for a trial: the same on all ranks, like all
// that decides it.
func (c *Comm) tries(alg *algorithm, o *CallOptions) bool {
	return alg.name == pull && c.trial == untried && o.Algorithm == "" && c.selector == nil
}

// try performs all-gathers both ways, and lets the faster one have what comes. The
// slower of the ranks counts, so that all of them decide alike.
func (c *Comm) try() error {
	ways := [...]string{pull, "chunk"}
	best := [len(ways)]uint64{math.MaxUint64, math.MaxUint64}
	in, out := make([]byte, trialBytes), make([]byte, c.comm.Size()*trialBytes)
	for range trialRounds {
		for i, way := range ways {
			began := time.Now()
			if err := c.gatherBy(way, in, out); err != nil {
				return err
			}
			best[i] = min(best[i], uint64(time.Since(began)))
		}
	}
	mine, all := make([]byte, 8*len(ways)), make([]byte, c.comm.Size()*8*len(ways))
	for i, t := range best {
		binary.LittleEndian.PutUint64(mine[8*i:], t)
	}
	if err := c.gatherBy("chunk", mine, all); err != nil {
		return err
	}
	var slowest [len(ways)]uint64
	for k := range c.comm.Size() * len(ways) {
		slowest[k%len(ways)] = max(slowest[k%len(ways)], binary.LittleEndian.Uint64(all[8*k:]))
	}
	c.trial = pullWins
	if slowest[1] < slowest[0] {
		c.trial = stagesWin
	}
	c.comm.Log().Debug("two ways for large data between two ranks were tried",
		"bytes", trialBytes, "pull", time.Duration(slowest[0]), "stages", time.Duration(slowest[1]))
	c.choices.reset()
	return nil
}

// gatherBy is an all-gather by a named algorithm, within another call.
func (c *Comm) gatherBy(algorithm string, in, out []byte) error {
	return c.start(&job{
		collective: AllGather, input: unsafe.Pointer(&in[0]), output: unsafe.Pointer(&out[0]),
		count: len(in), dtype: kernel.Uint8, inCount: uint64(len(in)), outCount: uint64(len(out)),
	}, &CallOptions{Algorithm: algorithm})
}
