package launch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// firstSpecialStep is where the numbers of Slurm's own steps begin: batch, extern,
// interactive. They look like steps and are none.
const firstSpecialStep = 4294967280

// notASlurmStep reports whether the variables come from a batch script or from an
// interactive shell, which carry SLURM_PROCID=0 although no srun started them, or from
// another launcher's step.
func notASlurmStep(get lookup) bool {
	return !stepOfSlurm(get) || inherited(get, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
}

// inherited reports whether the task with such a number, of so many, is a helper which
// mpiexec of MPICH or Intel MPI starts by srun, one on each host, or the script that mpiexec
// runs in. The ranks that they make inherit their variables. Where the engine itself speaks
// PMI, both say the same.
func inherited(get lookup, rank, size string) bool {
	if get("MPI_LOCALRANKID") == "" {
		return false
	}
	if get("PMI_RANK") == "" || get("PMI_SIZE") == "" {
		return get("PMI_PORT") != "" && get("PMI_ID") != "" // mpiexec -pmi-port
	}
	return get("PMI_RANK") != get(rank) || get("PMI_SIZE") != get(size)
}

func readSlurm(r *reader, e *Engine) {
	e.Rank, e.World = r.number("SLURM_PROCID"), r.number("SLURM_STEP_NUM_TASKS")
	e.LocalRank = r.number("SLURM_LOCALID")
	if r.get("SLURM_NODEID") != "" {
		e.Node = r.number("SLURM_NODEID")
	}
	e.Nodes = 1
	if n := r.get("SLURM_STEP_NUM_NODES"); n != "" {
		e.Nodes = r.number("SLURM_STEP_NUM_NODES")
	}
	perNode, err := slurmTasks(r.get("SLURM_STEP_TASKS_PER_NODE"))
	if err == nil && e.Node < len(perNode) {
		e.LocalWorld = perNode[e.Node]
	} else if e.World == e.Nodes {
		e.LocalWorld = 1
	} else if e.Nodes == 1 {
		e.LocalWorld = e.World
	} else if err == nil && r.err == nil {
		r.err = fmt.Errorf("%w: SLURM_NODEID=%d, and SLURM_STEP_TASKS_PER_NODE=%s is a list of %d hosts: expected one below their number", framework.ErrInvalid, e.Node, r.get("SLURM_STEP_TASKS_PER_NODE"), len(perNode))
	} else if r.err == nil {
		r.err = fmt.Errorf("%w: SLURM_STEP_TASKS_PER_NODE=%q: expected a list such as 4(x2),3", framework.ErrInvalid, r.get("SLURM_STEP_TASKS_PER_NODE"))
	}
	// One task for each host: the step is there to start ranks.
	if e.World == e.Nodes && r.err == nil {
		*e = Engine{Name: e.Name, Role: RoleAgent, Node: e.Rank, Nodes: e.Nodes}
	}
	if list := r.get("SLURM_STEP_NODELIST"); list != "" && r.get("MASTER_ADDR") == "" {
		e.MasterAddr = slurmFirst(list)
	}
	r.port(e, "SLURM_JOB_ID", "SLURM_STEP_ID")
}

// slurmTasks expands "4(x2),3" to 4, 4, 3.
func slurmTasks(text string) ([]int, error) {
	var out []int
	for _, part := range strings.Split(text, ",") {
		count, repeat, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, err
		}
		times := 1
		if repeated {
			if times, err = strconv.Atoi(strings.TrimSuffix(repeat, ")")); err != nil || times < 0 || times > 1<<20 {
				return nil, fmt.Errorf("%w: %q", framework.ErrInvalid, part)
			}
		}
		for range times {
			out = append(out, n)
		}
	}
	return out, nil
}

// slurmFirst returns the first host of a compressed list: "gpu[03-07,9],x" is gpu03.
func slurmFirst(list string) string {
	open := strings.IndexByte(list, '[')
	if comma := strings.IndexByte(list, ','); open < 0 || comma >= 0 && comma < open {
		first, _, _ := strings.Cut(list, ",")
		return first
	}
	inside, after, ok := strings.Cut(list[open+1:], "]")
	if !ok {
		return ""
	}
	number := inside
	if i := strings.IndexAny(inside, ",-"); i >= 0 {
		number = inside[:i]
	}
	suffix, _, _ := strings.Cut(after, ",")
	if strings.Contains(suffix, "[") { // a second dimension: "r[1-2]n[1-4]"
		return list[:open] + number + slurmFirst(suffix)
	}
	return list[:open] + number + suffix
}
