package launch

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/loopback"
)

// PyTorchJob is the Name of the engine that has no variables of its own.
const PyTorchJob = "PyTorchJob"

const torchrun = "torchrun"

// rule is how one engine is recognized.
type rule struct {
	name string
	role Role
	need []string               // variables that must be there
	not  func(lookup) bool      // exceptions
	read func(*reader, *Engine) // fills the engine
}

// origin says whose variables these are. The bare name of ours would read like the
// beginning of every message.
func (r rule) origin() string {
	if r.name == "environment" {
		return r.name
	}
	return "variables of " + r.name
}

// rules are tried in order: engines that run inside another come first.
var rules = []rule{
	{name: "mscclpp-run", role: RoleRank, need: []string{Mark, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, read: readTorch},
	{name: torchrun, role: RoleRank, need: []string{"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, read: readTorch},
	{name: "jsrun", role: RoleRank, need: []string{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"}, not: has("FLUX_TASK_RANK"), read: func(r *reader, e *Engine) {
		r.rank(e, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE")
		r.port(e, "LSB_JOBID")
	}},
	{name: "Open MPI", role: RoleRank, need: []string{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, not: has("JSM_NAMESPACE_RANK"), read: func(r *reader, e *Engine) {
		r.rank(e, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
		r.port(e, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
	}},
	// prterun for programs that are not of Open MPI. It starts its helpers by srun in Slurm.
	{name: "PRRTE", role: RoleRank, need: []string{"PRTE_LAUNCHED", "PMIX_RANK"}, not: byHand, read: func(r *reader, _ *Engine) {
		r.err = fmt.Errorf("%w: PMIX_RANK is set, and nothing says how many ranks there are, but by PMIx alone: expected OMPI_COMM_WORLD_SIZE, as mpirun of Open MPI sets it, and prterun --personality ompi; or RANK, WORLD_SIZE and LOCAL_RANK; unset PRTE_LAUNCHED where another launcher, inside of prterun, has made the ranks; mscclpp-run --standalone goes by none of it", framework.ErrInvalid)
	}},
	{name: "Flux", role: RoleRank, need: []string{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"}, not: notAFluxTask, read: readFlux},
	{name: "Slurm", role: RoleRank, need: []string{"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, not: notASlurmStep, read: readSlurm},
	{name: "PMI", role: RoleRank, need: []string{"PMI_RANK", "PMI_SIZE"}, read: readPMI},
	// mpiexec -pmi-port. A user who numbers the ranks by hand as well has no need of PMI's numbers.
	{name: "PMI", role: RoleRank, need: []string{"PMI_PORT", "PMI_ID"}, not: byHand, read: func(r *reader, _ *Engine) {
		r.err = fmt.Errorf("%w: PMI_PORT is set, and PMI_RANK and PMI_SIZE are not: expected both; leave out -pmi-port, with which mpiexec tells a rank its place by MPI alone", framework.ErrInvalid)
	}},
	{name: "Kubeflow Trainer", role: RoleAgent, need: []string{"PET_NNODES", "PET_NODE_RANK"}, read: func(r *reader, e *Engine) {
		nodes, _, _ := strings.Cut(r.get("PET_NNODES"), ":") // "2:4" in elastic jobs: the least
		e.Node, e.Nodes = r.number("PET_NODE_RANK"), r.parse("PET_NNODES", nodes)
		switch per := r.get("PET_NPROC_PER_NODE"); per {
		case "gpu", "cpu", "auto":
			e.PerNodeOf = per
		case "":
		default:
			e.PerNode = r.parse("PET_NPROC_PER_NODE", per)
		}
		r.master(e, "PET_MASTER_ADDR", "PET_MASTER_PORT")
	}},
	{name: "LeaderWorkerSet", role: RoleAgent, need: []string{"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE"}, read: func(r *reader, e *Engine) {
		if r.get("LWS_WORKER_INDEX") == "" { // early releases have no such variable
			r.err = fmt.Errorf("%w: LWS_WORKER_INDEX is not set: expected the number of this pod in its group, which its label leaderworkerset.sigs.k8s.io/worker-index has", framework.ErrInvalid)
			return
		}
		e.Node, e.Nodes = r.number("LWS_WORKER_INDEX"), r.number("LWS_GROUP_SIZE")
		e.MasterAddr = loopback.Unbracket(r.get("LWS_LEADER_ADDRESS"))
	}},
	{name: "SkyPilot", role: RoleAgent, need: []string{"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_IPS"}, read: func(r *reader, e *Engine) {
		e.Node, e.Nodes = r.number("SKYPILOT_NODE_RANK"), r.number("SKYPILOT_NUM_NODES")
		first, _, _ := strings.Cut(strings.TrimSpace(r.get("SKYPILOT_NODE_IPS")), "\n")
		e.MasterAddr = loopback.Unbracket(strings.TrimSpace(first))
	}},
	{name: "environment", role: RoleRank, need: []string{"RANK", "WORLD_SIZE", "LOCAL_RANK"}, read: readTorch},
	// PyTorchJob v1 sets RANK and WORLD_SIZE for each pod and no LOCAL_RANK: they count hosts, not
	// ranks. Without MASTER_ADDR another engine did, and where rank 0 is has to be said: a job of
	// this host alone is not what they stand for.
	{name: PyTorchJob, role: RoleAgent, need: []string{"RANK", "WORLD_SIZE"}, read: func(r *reader, e *Engine) {
		e.Node, e.Nodes = r.number("RANK"), r.number("WORLD_SIZE")
	}},
	{name: "Kubernetes indexed job", role: RoleAgent, need: []string{"JOB_COMPLETION_INDEX"}, read: func(r *reader, e *Engine) {
		e.Node = r.number("JOB_COMPLETION_INDEX")
	}},
}

// Detect determines from the environment what launched this process. Variables of an
// engine that make no sense are an error, since a guess would start a job of the wrong
// size.
func Detect(getenv func(string) string) (Engine, error) {
	for i, rule := range rules {
		if !rule.matches(getenv) {
			continue
		}
		e, err := rule.engine(getenv)
		if err == nil && rule.name == torchrun && e.World == 1 {
			err = startedWithin(rules[i+1:], getenv)
		}
		if err != nil {
			return Engine{}, fmt.Errorf("%s: %w", rule.origin(), err)
		}
		return e, nil
	}
	return Engine{}, half(getenv)
}

// matches reports whether the variables of the engine are there.
func (r rule) matches(getenv lookup) bool {
	for _, name := range r.need {
		if getenv(name) == "" {
			return false
		}
	}
	return r.not == nil || !r.not(getenv)
}

// engine is what the variables say.
func (r rule) engine(getenv lookup) (Engine, error) {
	read := &reader{get: getenv}
	e := Engine{Name: r.name, Role: r.role}
	r.read(read, &e)
	read.master(&e, "MASTER_ADDR", "MASTER_PORT")
	if read.err != nil {
		return Engine{}, read.err
	}
	return e, e.check()
}

// startedWithin refuses a job of one rank where another engine made this process one of several:
// a script that torchrun started has run mpirun, say, and each of its ranks would be a job of its
// own. Nothing tells which of the two is within the other.
func startedWithin(others []rule, getenv lookup) error {
	for _, rule := range others {
		if rule.role != RoleRank || rule.name == "environment" || !rule.matches(getenv) {
			continue
		}
		if e, err := rule.engine(getenv); err == nil && e.World > 1 {
			return fmt.Errorf("%w: RANK=0 WORLD_SIZE=1, and %s made this process rank %d of %d: expected one of them: unset TORCHELASTIC_RUN_ID, RANK and WORLD_SIZE where %s is the inner one, else the variables of %s; mscclpp-run --standalone goes by neither",
				framework.ErrInvalid, e.Name, e.Rank, e.World, e.Name, e.Name)
		}
	}
	return nil
}

// check refuses places that cannot be.
func (e *Engine) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", framework.ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case e.Role == RoleRank && e.Rank >= e.World:
		return bad("rank %d of %d: expected one below the size", e.Rank, e.World)
	case e.Role == RoleRank && (e.LocalRank >= e.LocalWorld || e.LocalWorld > e.World):
		return bad("local rank %d of %d in a job of %d: expected one below the ranks of this host, and no more of them than the job has", e.LocalRank, e.LocalWorld, e.World)
	case e.Role == RoleAgent && e.Nodes != 0 && e.Node >= e.Nodes:
		return bad("host %d of %d: expected one below the number of hosts", e.Node, e.Nodes)
	}
	return nil
}

// has reports whether a variable is set.
func has(name string) func(lookup) bool {
	return func(get lookup) bool { return get(name) != "" }
}

// byHand reports whether a rank has the variables that are customary.
func byHand(get lookup) bool {
	return get("RANK") != "" && get("WORLD_SIZE") != "" && get("LOCAL_RANK") != ""
}

func readTorch(r *reader, e *Engine) {
	e.Rank, e.World, e.LocalRank = r.number("RANK"), r.number("WORLD_SIZE"), r.number("LOCAL_RANK")
	if r.get("LOCAL_WORLD_SIZE") != "" {
		e.LocalWorld = r.number("LOCAL_WORLD_SIZE")
	} else {
		e.LocalWorld = e.LocalRank + 1
	}
	if r.get("GROUP_RANK") != "" {
		e.Node = r.number("GROUP_RANK")
	}
}

// readPMI reads the variables of MPICH, Intel MPI, MVAPICH and PALS, which share
// the global names and differ in the local ones.
func readPMI(r *reader, e *Engine) {
	local, size := "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
	for _, names := range [][2]string{{"PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"}, {"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"}, {"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"}} {
		if r.get(names[0]) != "" {
			local, size = names[0], names[1]
		}
	}
	r.rank(e, "PMI_RANK", "PMI_SIZE", local, size)
	r.port(e, "PMI_JOBID", "PALS_APID")
}
