package launch

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// environment parses "A=1 B=2" into a lookup.
func environment(text string) func(string) string {
	m := map[string]string{}
	for _, e := range strings.Fields(text) {
		name, value, _ := strings.Cut(e, "=")
		m[name] = strings.ReplaceAll(value, `\n`, "\n")
	}
	return func(name string) string { return m[name] }
}

func TestDetect(t *testing.T) {
	const slurm = "SLURM_JOB_ID=12 SLURM_STEP_ID=0 "
	for name, c := range map[string]struct {
		env  string
		want Engine
	}{
		"nothing": {"HOME=/root", Engine{}},
		"torchrun": {"TORCHELASTIC_RUN_ID=x RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=n0 MASTER_PORT=29500",
			Engine{Name: "torchrun", Role: RoleRank, Rank: 5, World: 8, LocalRank: 1, LocalWorld: 4, Node: 1, MasterAddr: "n0", MasterPort: 29500}},
		"ourselves": {"MSCCLPP_LAUNCH_ID=ab RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1",
			Engine{Name: "mscclpp-run", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 1}},
		"ourselves inside Slurm": {slurm + "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 MSCCLPP_LAUNCH_ID=ab RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2",
			Engine{Name: "mscclpp-run", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1"}},
		"Open MPI, one host": {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4 MASTER_PORT=7",
			Engine{Name: "Open MPI", Role: RoleRank, Rank: 2, World: 4, LocalRank: 2, LocalWorld: 4, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"Open MPI, two hosts": {"OMPI_COMM_WORLD_RANK=6 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=4 MASTER_ADDR=h MASTER_PORT=7",
			Engine{Name: "Open MPI", Role: RoleRank, Rank: 6, World: 8, LocalRank: 2, LocalWorld: 4, MasterAddr: "h", MasterPort: 7}},
		"MPICH": {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_PORT=7",
			Engine{Name: "PMI", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"PALS": {"PMI_RANK=3 PMI_SIZE=4 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2 MASTER_PORT=7 MASTER_ADDR=h",
			Engine{Name: "PMI", Role: RoleRank, Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "h", MasterPort: 7}},
		"PMI, one rank": {"PMI_RANK=0 PMI_SIZE=1 MASTER_PORT=7",
			Engine{Name: "PMI", Role: RoleRank, World: 1, LocalWorld: 1, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"jsrun": {"JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=0 JSM_NAMESPACE_LOCAL_SIZE=2 MASTER_PORT=7 OMPI_COMM_WORLD_RANK=9",
			Engine{Name: "jsrun", Role: RoleRank, World: 2, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"jsrun around Flux": {"JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 FLUX_TASK_RANK=2 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=2 FLUX_JOB_NNODES=1 MASTER_PORT=7",
			Engine{Name: "Flux", Role: RoleRank, Rank: 2, World: 4, LocalRank: 2, LocalWorld: 4, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"prterun as Open MPI": {"PRTE_LAUNCHED=1 PMIX_RANK=1 PMIX_NAMESPACE=prterun-a-9@1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT=7",
			Engine{Name: "Open MPI", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"by hand inside prterun": {"PRTE_LAUNCHED=1 PMIX_RANK=1 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_PORT=7",
			Engine{Name: "environment", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"Flux, one host": {"FLUX_JOB_ID=f2 FLUX_TASK_RANK=1 FLUX_JOB_SIZE=3 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1 PMI_RANK=1 PMI_SIZE=3 PMI_FD=9 MASTER_PORT=7",
			Engine{Name: "Flux", Role: RoleRank, Rank: 1, World: 3, LocalRank: 1, LocalWorld: 3, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"Flux, two hosts": {"FLUX_TASK_RANK=6 FLUX_JOB_SIZE=8 FLUX_TASK_LOCAL_ID=2 FLUX_JOB_NNODES=2 MASTER_ADDR=h MASTER_PORT=7",
			Engine{Name: "Flux", Role: RoleRank, Rank: 6, World: 8, LocalRank: 2, LocalWorld: 4, MasterAddr: "h", MasterPort: 7}},
		"Flux, five tasks on one of two hosts": {"FLUX_TASK_RANK=4 FLUX_JOB_SIZE=6 FLUX_TASK_LOCAL_ID=4 FLUX_JOB_NNODES=2 MASTER_PORT=7",
			Engine{Name: "Flux", Role: RoleRank, Rank: 4, World: 6, LocalRank: 4, LocalWorld: 5, MasterPort: 7}},
		"Flux, a task a host": {"FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=2 MASTER_PORT=7",
			Engine{Name: "Flux", Role: RoleRank, Rank: 1, World: 2, LocalWorld: 1, MasterPort: 7}},
		"Flux inside Slurm": {slurm + "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0 FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1 MASTER_PORT=7",
			Engine{Name: "Flux", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"MPICH inside Flux": {"FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=1 PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_PORT=7",
			Engine{Name: "PMI", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"a shell of Flux": {"FLUX_URI=local:///run/flux/local FLUX_JOB_SIZE=8 FLUX_JOB_NNODES=2", Engine{}},
		"srun, a task a rank": {slurm + "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=4,3 SLURM_STEP_NODELIST=gpu[03-04] MASTER_PORT=7",
			Engine{Name: "Slurm", Role: RoleRank, Rank: 5, World: 7, LocalRank: 1, LocalWorld: 3, Node: 1, Nodes: 2, MasterAddr: "gpu03", MasterPort: 7}},
		"srun, a task a host": {slurm + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=a,b MASTER_PORT=7",
			Engine{Name: "Slurm", Role: RoleAgent, Node: 1, Nodes: 2, MasterAddr: "a", MasterPort: 7}},
		"srun without list of tasks": {slurm + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 MASTER_PORT=7",
			Engine{Name: "Slurm", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Nodes: 1, MasterAddr: "127.0.0.1", MasterPort: 7}},
		// The step is that of mpiexec's helpers, and not of the ranks.
		"MPICH inside Slurm": {slurm + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=a,b PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_ADDR=a MASTER_PORT=7",
			Engine{Name: "PMI", Role: RoleRank, Rank: 3, World: 4, LocalRank: 1, LocalWorld: 2, MasterAddr: "a", MasterPort: 7}},
		"srun that speaks PMI": {slurm + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_PORT=7",
			Engine{Name: "Slurm", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Nodes: 1, MasterAddr: "127.0.0.1", MasterPort: 7}},
		"srun in a shell with PMI of another step": {slurm + "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 PMI_RANK=0 PMI_SIZE=1 MASTER_PORT=7",
			Engine{Name: "Slurm", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, Nodes: 1, MasterAddr: "127.0.0.1", MasterPort: 7}},
		// A batch script and an interactive shell have the variables of a rank.
		"sbatch without tasks": {"SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_LOCALID=0", Engine{}},
		"sbatch":               {"SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0", Engine{}},
		"interactive":          {"SLURM_JOB_ID=12 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_LOCALID=0", Engine{}},
		"trainer": {"PET_NNODES=2 PET_NODE_RANK=1 PET_NPROC_PER_NODE=8 PET_MASTER_ADDR=m PET_MASTER_PORT=29500",
			Engine{Name: "Kubeflow Trainer", Role: RoleAgent, Node: 1, Nodes: 2, PerNode: 8, MasterAddr: "m", MasterPort: 29500}},
		"elastic trainer": {"PET_NNODES=2:4 PET_NODE_RANK=1 PET_NPROC_PER_NODE=auto PET_MASTER_ADDR=m",
			Engine{Name: "Kubeflow Trainer", Role: RoleAgent, Node: 1, Nodes: 2, PerNodeOf: "auto", MasterAddr: "m"}},
		"trainer without a number": {"PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_ADDR=m",
			Engine{Name: "Kubeflow Trainer", Role: RoleAgent, Nodes: 2, MasterAddr: "m"}},
		"PyTorchJob v1": {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=m MASTER_PORT=23456",
			Engine{Name: "PyTorchJob", Role: RoleAgent, Node: 1, Nodes: 4, MasterAddr: "m", MasterPort: 23456}},
		// Their origin does not matter: they are no job of this host alone.
		"RANK and WORLD_SIZE alone": {"RANK=1 WORLD_SIZE=4", Engine{Name: "PyTorchJob", Role: RoleAgent, Node: 1, Nodes: 4}},
		"indexed job":               {"JOB_COMPLETION_INDEX=3", Engine{Name: "Kubernetes indexed job", Role: RoleAgent, Node: 3}},
		"LeaderWorkerSet": {"LWS_LEADER_ADDRESS=l.svc LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1",
			Engine{Name: "LeaderWorkerSet", Role: RoleAgent, Node: 1, Nodes: 2, MasterAddr: "l.svc"}},
		"SkyPilot": {`SKYPILOT_NODE_RANK=1 SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_IPS=10.0.0.1\n10.0.0.2`,
			Engine{Name: "SkyPilot", Role: RoleAgent, Node: 1, Nodes: 2, MasterAddr: "10.0.0.1"}},
		"by hand inside PMI": {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 PMI_PORT=h:1 PMI_ID=1 MASTER_PORT=5",
			Engine{Name: "environment", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "127.0.0.1", MasterPort: 5}},
		"by hand": {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=5",
			Engine{Name: "environment", Role: RoleRank, Rank: 1, World: 2, LocalRank: 1, LocalWorld: 2, MasterAddr: "m", MasterPort: 5}},
	} {
		got, err := Detect(environment(c.env))
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v\nexpected %+v", name, got, err, c.want)
		}
	}
}

func TestDetectRefusesNonsense(t *testing.T) {
	const slurmOfTwo = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 "
	for name, c := range map[string]struct{ env, want string }{
		"text":                 {"OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", `OMPI_COMM_WORLD_RANK="x": expected a number`},
		"rank too high":        {"TORCHELASTIC_RUN_ID=1 RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", "rank 2 of 2: expected one below"},
		"local":                {"TORCHELASTIC_RUN_ID=1 RANK=1 WORLD_SIZE=2 LOCAL_RANK=3 LOCAL_WORLD_SIZE=2", "local rank 3 of 2 in a job of 2: expected one below"},
		"no local rank":        {"PMI_RANK=1 PMI_SIZE=2", "MPI_LOCALRANKID and MPI_LOCALNRANKS are not set"},
		"host":                 {"LWS_LEADER_ADDRESS=l LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=2", "host 2 of 2: expected one below"},
		"pod without a number": {"LWS_LEADER_ADDRESS=l LWS_GROUP_SIZE=2", "variables of LeaderWorkerSet: invalid: LWS_WORKER_INDEX is not set: expected the number of this pod"},
		"tasks":                {"SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=2(y", "SLURM_STEP_TASKS_PER_NODE"},
		"port":                 {"TORCHELASTIC_RUN_ID=1 RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_PORT=99999", `variables of torchrun: invalid: MASTER_PORT="99999": expected a port, 1 to 65535`},
		"no port":              {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_PORT=-5", `environment: invalid: MASTER_PORT="-5": expected a port, 1 to 65535`},
		"port 0":               {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_PORT=0", `environment: invalid: MASTER_PORT="0": expected a port, 1 to 65535`},
		"port 0 of a trainer":  {"PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=m PET_MASTER_PORT=0", `PET_MASTER_PORT="0": expected a port`},
		"port 0 in Slurm":      {"SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 MASTER_PORT=0", `MASTER_PORT="0": expected a port`},
		"host beyond the list": {slurmOfTwo + "SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=2", "variables of Slurm: invalid: SLURM_NODEID=2, and SLURM_STEP_TASKS_PER_NODE=2(x2) is a list of 2 hosts: expected one below"},
		"no list":              {slurmOfTwo + "SLURM_NODEID=1", `SLURM_STEP_TASKS_PER_NODE="": expected a list`},
		"PMI by a port":        {"PMI_PORT=h:37397 PMI_ID=1 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "variables of PMI: invalid: PMI_PORT is set, and PMI_RANK and PMI_SIZE are not"},
		"the same in Slurm":    {slurmOfTwo + "SLURM_STEP_TASKS_PER_NODE=1(x2) PMI_PORT=h:37397 PMI_ID=1 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "leave out -pmi-port"},
		"the same in a pod":    {"JOB_COMPLETION_INDEX=0 PMI_PORT=h:37397 PMI_ID=1", "leave out -pmi-port"},
		"prterun":              {"PRTE_LAUNCHED=1 PMIX_RANK=1 PMIX_NAMESPACE=prterun-a-9@1", "variables of PRRTE: invalid: PMIX_RANK is set, and nothing says how many ranks there are"},
		"prterun in Slurm":     {slurmOfTwo + "SLURM_STEP_TASKS_PER_NODE=2(x2) PRTE_LAUNCHED=1 PMIX_RANK=1", "expected OMPI_COMM_WORLD_SIZE"},
		"hosts of Flux":        {"FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=3", "FLUX_JOB_NNODES=3, and FLUX_JOB_SIZE=2: expected"},
		"no hosts of Flux":     {"FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=0", "FLUX_JOB_NNODES=0"},
		"part of Flux":         {"FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_JOB_NNODES=1", `variables of Flux: invalid: FLUX_TASK_LOCAL_ID="": expected a number`},
		"too large":            {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=99999999999999999999", `OMPI_COMM_WORLD_SIZE="99999999999999999999" is too large: expected at most`},
		"negative":             {"JOB_COMPLETION_INDEX=-1", "expected a number"},
	} {
		_, err := Detect(environment(c.env))
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
}

// A script that torchrun started as its one rank may run mpirun, whose ranks inherit torchrun's
// variables: each would be a job of its own. Jobs of several ranks are torchrun's, also where
// another engine has started torchrun on each host.
func TestTorchrunAroundAnotherEngine(t *testing.T) {
	const (
		one   = "TORCHELASTIC_RUN_ID=x RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=m MASTER_PORT=5 "
		four  = "TORCHELASTIC_RUN_ID=x RANK=2 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 MASTER_ADDR=m MASTER_PORT=5 "
		mpi   = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2"
		alone = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1"
	)
	for env, want := range map[string]string{
		one + mpi: "Open MPI made this process rank 1 of 2",
		one + "SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=2 SLURM_STEP_TASKS_PER_NODE=4":             "Slurm made this process rank 2 of 4",
		one + "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2":                                                     "PMI made this process rank 1 of 2",
		one + "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1":                                       "Flux made this process rank 1 of 2",
		one + "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=2 LSB_JOBID=123": "jsrun made this process rank 1 of 2",
	} {
		_, err := Detect(environment(env))
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "torchrun") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected an error with torchrun and %q", env, err, want)
		}
	}
	for _, env := range []string{four + mpi, one + alone, one} {
		if e, err := Detect(environment(env)); err != nil || e.Name != "torchrun" {
			t.Errorf("%s: %q, %v: expected torchrun", env, e.Name, err)
		}
	}
}

// Half of a place is no job of this process alone: the error names what is missing.
func TestDetectRefusesHalves(t *testing.T) {
	for env, missing := range map[string]string{
		"RANK=1": "WORLD_SIZE", "WORLD_SIZE=2": "RANK", "RANK=1 LOCAL_RANK=1": "WORLD_SIZE", "WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h": "RANK",
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1": "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE=2": "OMPI_COMM_WORLD_RANK",
		"PMI_RANK=1 PMI_FD=7": "PMI_SIZE", "PMI_SIZE=2": "PMI_RANK", "JSM_NAMESPACE_RANK=1": "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_SIZE=1": "JSM_NAMESPACE_RANK",
		"FLUX_TASK_RANK=1": "FLUX_JOB_SIZE", "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=1": "SLURM_STEP_NUM_TASKS",
	} {
		name, _, _ := strings.Cut(env, "=")
		if name == "SLURM_STEP_ID" {
			name = "SLURM_PROCID"
		}
		_, err := Detect(environment(env))
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), name+"=") || !strings.Contains(err.Error(), "is set, and "+missing+" is not: expected both") {
			t.Errorf("%s: %v, expected that %s is missing", env, err, missing)
		}
	}
}

// Of Flux too, whose name of a job hosts may write in two ways.
func TestPortOfAJobOfFlux(t *testing.T) {
	port := func(id string) int {
		e, err := Detect(environment("FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=2 FLUX_JOB_ID=" + id))
		if err != nil {
			t.Fatal(err)
		}
		return e.MasterPort
	}
	if a, b, other := port("ƒD2e73NP"), port("fD2e73NP"), port("fD2e73NQ"); a != b || a == other || a == 0 {
		t.Errorf("ports %d, %d, %d", a, b, other)
	}
}

// All hosts must come to the same port, and two jobs on a host to different ones.
func TestPortOfAJob(t *testing.T) {
	port := func(job string) int {
		e, err := Detect(environment("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 SLURM_JOB_ID=" + job))
		if err != nil {
			t.Fatal(err)
		}
		return e.MasterPort
	}
	if a, b, other := port("7"), port("7"), port("8"); a != b || a == other {
		t.Errorf("ports %d, %d, %d", a, b, other)
	}
	if p := port("9"); p < 20000 || p >= 30000 {
		t.Errorf("port %d: expected one below those that the kernel gives out", p)
	}
}

// PMI_ID is the number of a rank, where there is one.
func TestPortOfAJobOfPMI(t *testing.T) {
	var ports []int
	for _, rank := range []string{"0", "1"} {
		e, err := Detect(environment("PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_RANK=" + rank + " PMI_ID=" + rank + " MPI_LOCALRANKID=" + rank))
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, e.MasterPort)
	}
	if ports[0] != ports[1] {
		t.Errorf("ports %v: expected one", ports)
	}
}

func TestSlurmNodeLists(t *testing.T) {
	for list, want := range map[string]string{
		"a": "a", "a,b": "a", "gpu[03-07,9],x": "gpu03", "x,gpu[1-2]": "x", "n[7]": "n7", "n[1-2]-ib,z": "n1-ib", "r[1-2]n[3-4]": "r1n3", "broken[1": "",
	} {
		if got := slurmFirst(list); got != want {
			t.Errorf("%s = %q, expected %q", list, got, want)
		}
	}
}

func TestSlurmTasks(t *testing.T) {
	got, err := slurmTasks("4(x2),3")
	if err != nil || len(got) != 3 || got[0] != 4 || got[1] != 4 || got[2] != 3 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "x", "1(x", "1(x-1)", "1(x99999999999)"} {
		if got, err := slurmTasks(bad); err == nil {
			t.Errorf("%q = %v", bad, got)
		}
	}
}

func FuzzDetect(f *testing.F) {
	f.Add("0", "1", "4(x2)", "gpu[03-07]")
	f.Fuzz(func(t *testing.T, rank, size, tasks, list string) {
		env := map[string]string{"SLURM_STEP_ID": "1", "SLURM_PROCID": rank, "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": size,
			"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": list}
		e, err := Detect(func(name string) string { return env[name] })
		if err == nil && e.Role == RoleRank && (e.Rank >= e.World || e.LocalRank >= e.LocalWorld) {
			t.Errorf("%+v makes no sense", e)
		}
	})
}

func TestAgentOfALoneRank(t *testing.T) {
	alone := Engine{Name: "Open MPI", Role: RoleRank, Rank: 1, World: 2, LocalWorld: 1, MasterAddr: "h", MasterPort: 7}
	if got, want := alone.Agent(), (Engine{Name: "Open MPI", Role: RoleAgent, Node: 1, Nodes: 2, MasterAddr: "h", MasterPort: 7}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	for name, e := range map[string]Engine{
		"two on the host": {Name: "Open MPI", Role: RoleRank, World: 4, LocalWorld: 2},
		"a job of one":    {Name: "PMI", Role: RoleRank, World: 1, LocalWorld: 1},
		"a rank of ours":  {Name: "mscclpp-run", Role: RoleRank, World: 2, LocalWorld: 1},
		"none":            {},
	} {
		if got := e.Agent(); got != (Engine{}) {
			t.Errorf("%s: %+v, expected none", name, got)
		}
	}
}

// Launchers write an address of IPv6 with brackets or without.
func TestBracketsAroundTheAddress(t *testing.T) {
	for _, env := range []string{
		"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=[fd00::1] MASTER_PORT=7",
		"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 MASTER_ADDR=[fd00::1] MASTER_PORT=7",
		"PET_NNODES=2 PET_NODE_RANK=1 PET_NPROC_PER_NODE=8 PET_MASTER_ADDR=[fd00::1]",
		"LWS_LEADER_ADDRESS=[fd00::1] LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1",
		"SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=1 SKYPILOT_NODE_IPS=[fd00::1]",
	} {
		e, err := Detect(environment(env))
		if err != nil || e.MasterAddr != "fd00::1" {
			t.Errorf("%s: %+v, %v: expected fd00::1", env, e, err)
		}
	}
}
