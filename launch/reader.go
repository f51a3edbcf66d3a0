package launch

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

type lookup func(name string) string

// reader reads numbers from the environment and keeps the first mistake.
type reader struct {
	get lookup
	err error
}

func (r *reader) number(name string) int { return r.parse(name, r.get(name)) }

func (r *reader) parse(name, text string) int {
	n, err := strconv.Atoi(text)
	switch {
	case r.err != nil:
	case n > math.MaxInt32: // also where it fits no integer
		r.err = fmt.Errorf("%w: %s=%q is too large: expected at most %d", framework.ErrInvalid, name, text, math.MaxInt32)
	case err != nil || n < 0:
		r.err = fmt.Errorf("%w: %s=%q: expected a number", framework.ErrInvalid, name, text)
	}
	return n
}

// rank reads the place of a rank. Without local variables the rank is taken to be
// alone on its host only if it is alone in the job.
func (r *reader) rank(e *Engine, rank, size, localRank, localSize string) {
	e.Rank, e.World = r.number(rank), r.number(size)
	if r.get(localRank) == "" || r.get(localSize) == "" {
		if e.World > 1 && r.err == nil {
			r.err = fmt.Errorf("%w: %s and %s are not set, expected both", framework.ErrInvalid, localRank, localSize)
		}
		e.LocalWorld = 1
		return
	}
	e.LocalRank, e.LocalWorld = r.number(localRank), r.number(localSize)
}

// master fills the meeting point where it is still open.
func (r *reader) master(e *Engine, addr, port string) {
	if e.MasterAddr == "" {
		e.MasterAddr = loopback.Unbracket(r.get(addr))
	}
	if text := r.get(port); e.MasterPort == 0 && text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if (err != nil || n == 0) && r.err == nil {
			r.err = fmt.Errorf("%w: %s=%q: expected a port, 1 to 65535", framework.ErrInvalid, port, text)
		}
		e.MasterPort = int(n)
	}
	if e.MasterAddr == "" && e.Role == RoleRank && e.World > 0 && e.LocalWorld == e.World {
		e.MasterAddr = loopback.Address(false)
	}
}

// port derives a port from the engine's name of the job, the same on all hosts,
// unless the user set one.
func (r *reader) port(e *Engine, names ...string) {
	if r.get("MASTER_PORT") != "" {
		return
	}
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = r.get(name)
	}
	e.MasterPort = PortOf(values...)
}

// PortOf derives a port from names of a job. It is the same on all hosts, and lies
// below the range of the kernel's ephemeral ports.
func PortOf(names ...string) int {
	h := fnv.New32a()
	for _, name := range names {
		h.Write([]byte(name))
	}
	return 20000 + int(h.Sum32()%10000)
}
