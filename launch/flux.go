package launch

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// readFlux reads what flux-shell sets for each task. It tells how many tasks and hosts there
// are, and not how many tasks are on this one: where that does not follow, they are taken to
// be spread evenly, which decides nothing but LOCAL_WORLD_SIZE. Nor does it tell which hosts
// they are.
func readFlux(r *reader, e *Engine) {
	e.Rank, e.World, e.LocalRank = r.number("FLUX_TASK_RANK"), r.number("FLUX_JOB_SIZE"), r.number("FLUX_TASK_LOCAL_ID")
	switch hosts := r.number("FLUX_JOB_NNODES"); {
	case r.err != nil:
	case hosts < 1 || hosts > e.World:
		r.err = fmt.Errorf("%w: FLUX_JOB_NNODES=%d, and FLUX_JOB_SIZE=%d: expected 1 to as many hosts as tasks", framework.ErrInvalid, hosts, e.World)
	default:
		e.LocalWorld = max(e.LocalRank+1, (e.World+hosts-1)/hosts)
	}
	if r.get("MASTER_PORT") == "" {
		// The first letter depends on whether a host's locale has it.
		id := r.get("FLUX_JOB_ID")
		e.MasterPort = PortOf(strings.TrimPrefix(strings.TrimPrefix(id, "ƒ"), "f"))
	}
}

// notAFluxTask reports whether a launcher inside a task has made this process.
func notAFluxTask(get lookup) bool { return inherited(get, "FLUX_TASK_RANK", "FLUX_JOB_SIZE") }
