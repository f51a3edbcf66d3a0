package enginetest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// openMPI is mpirun with what it needs in a container and on a small machine.
func openMPI(t *testing.T, args ...string) []string {
	t.Helper()
	path := installed(t, "mpirun")
	if code, out, _ := runs(t, nil, path, "--version"); code != 0 || !strings.Contains(out, "Open MPI") {
		t.Skip("no Open MPI: mpirun belongs to another one")
	}
	return append([]string{path, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"}, args...)
}

func TestOpenMPIStartsRanks(t *testing.T) {
	for name, before := range map[string][]string{
		"the program alone":   nil,
		"through mscclpp-run": {runner},
	} {
		t.Run(name, func(t *testing.T) {
			args := openMPI(t, append(append([]string{"-n", "3"}, before...), self(t))...)
			code, out, errs := runs(t, []string{modeVar + "=init"}, args...)
			if code != 0 || !slices.Equal(places(out), ranks(3)) {
				t.Errorf("code %d, %s, %s: expected one job of 3", code, out, errs)
			}
		})
	}
}

// PRRTE, on which Open MPI is built since 5.0, tells a rank how many there are where it
// passes for Open MPI. Otherwise ranks are refused: each would be a job of its own.
func TestPrterun(t *testing.T) {
	path, err := exec.LookPath("prterun")
	if err != nil {
		t.Skip("no prterun: Open MPI has it from 5.0 on")
	}
	prterun := []string{path, "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", "3"}
	as := append(slices.Clone(prterun), "--personality", "ompi")
	for _, before := range [][]string{nil, {runner}} {
		code, out, errs := runs(t, []string{modeVar + "=init"}, slices.Concat(as, before, []string{self(t)})...)
		if code != 0 || !slices.Equal(places(out), ranks(3)) {
			t.Errorf("as Open MPI: code %d, %s, %s: expected one job of 3", code, out, errs)
		}
		code, out, errs = runs(t, []string{modeVar + "=init"}, slices.Concat(prterun, before, []string{self(t)})...)
		if code == 0 || !strings.Contains(out+errs, "variables of PRRTE: invalid: PMIX_RANK is set, and nothing says how many ranks there are") {
			t.Errorf("as itself: code %d, %s, %s", code, out, errs)
		}
	}
}

func TestOpenMPIVerb(t *testing.T) {
	code, out, errs := runs(t, nil, openMPI(t, "-n", "2", runner, "topo", "--help")...)
	if code != 0 || strings.Count(out, "mscclpp-run topo") < 2 {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

// Two hosts by way of a remote shell that stays here. One process a host starts the
// ranks of its host; Open MPI does not say where rank 0 is.
func TestOpenMPIStartsNodeAgents(t *testing.T) {
	hosts := []string{"--mca", "plm_rsh_agent", fakeSSH(t), "-H", "a:1,b:1", "-n", "2"}
	env := []string{modeVar + "=meet", "MASTER_ADDR=127.0.0.1", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
	exported := []string{"-x", "MASTER_ADDR", "-x", "MSCCLPP_SECRET_FILE", "-x", modeVar}
	code, out, errs := runs(t, env, openMPI(t, slices.Concat(hosts, exported, []string{runner, "-n", "2", self(t)})...)...)
	want := []string{
		"rank 0 of 4 with [0 1] on this host, local 0 of 2, host 0",
		"rank 1 of 4 with [0 1] on this host, local 1 of 2, host 0",
		"rank 2 of 4 with [2 3] on this host, local 0 of 2, host 1",
		"rank 3 of 4 with [2 3] on this host, local 1 of 2, host 1",
	}
	if code != 0 || !slices.Equal(places(out), want) {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
	code, _, errs = runs(t, nil, openMPI(t, append(hosts, runner, "-n", "2", "true")...)...)
	if code != 2 || !strings.Contains(errs, "Open MPI does not say which host has rank 0") || !strings.Contains(errs, "MASTER_ADDR") {
		t.Errorf("without an address: code %d, %s", code, errs)
	}
	code, out, errs = runs(t, []string{modeVar + "=init"}, openMPI(t, append(hosts, "-x", modeVar, self(t))...)...)
	if code == 0 || !strings.Contains(out, "Open MPI does not say which host has rank 0") {
		t.Errorf("ranks without an address: code %d, %s, %s", code, out, errs)
	}
}

// Several processes on a host are ranks: more ranks in each of them are a mistake.
func TestRanksInRanksOfOpenMPI(t *testing.T) {
	code, _, errs := runs(t, nil, openMPI(t, "-n", "2", runner, "-n", "2", "true")...)
	if code != 2 || !strings.Contains(errs, "Open MPI made this process rank ") || !strings.Contains(errs, "one process for each host") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestMPICHStartsRanks(t *testing.T) {
	hydra := installed(t, "mpiexec.hydra")
	code, out, errs := runs(t, []string{modeVar + "=init"}, hydra, "-n", "3", self(t))
	if code != 0 || !slices.Equal(places(out), ranks(3)) {
		t.Errorf("code %d, %s, %s: expected one job of 3", code, out, errs)
	}
}

// mpiexec -pmi-port tells a rank its place by MPI alone: no rank takes itself for a job.
func TestMPICHByAPort(t *testing.T) {
	hydra := installed(t, "mpiexec.hydra")
	for name, args := range map[string][]string{
		"the program alone":   {self(t)},
		"through mscclpp-run": {runner, self(t)},
		"as agents":           {runner, "-n", "2", self(t)},
	} {
		code, out, errs := runs(t, []string{modeVar + "=init"}, append([]string{hydra, "-pmi-port", "-n", "2"}, args...)...)
		if said := out + errs; code == 0 || len(places(out)) > 0 || strings.Count(said, "leave out -pmi-port") != 2 {
			t.Errorf("%s: code %d, %s: expected a refusal of each", name, code, said)
		}
	}
}

func TestMPICHStartsNodeAgents(t *testing.T) {
	hydra := installed(t, "mpiexec.hydra")
	env := []string{modeVar + "=meet", "MASTER_ADDR=127.0.0.1", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
	code, out, errs := runs(t, env, hydra, "-launcher", "ssh", "-launcher-exec", fakeSSH(t), "-hosts", "a,b", "-n", "2", "-ppn", "1", runner, "-n", "1", self(t))
	want := []string{
		"rank 0 of 2 with [0] on this host, local 0 of 1, host 0",
		"rank 1 of 2 with [1] on this host, local 0 of 1, host 1",
	}
	if code != 0 || !slices.Equal(places(out), want) {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

// Inside a job of Slurm mpiexec starts its helpers by srun, and the ranks inherit their
// variables: two tasks on two hosts, where there are four ranks.
func TestMPICHStartsRanksInsideSlurm(t *testing.T) {
	hydra := installed(t, "mpiexec.hydra")
	env := []string{
		modeVar + "=meet", "MASTER_ADDR=127.0.0.1", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts"),
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0",
		"SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)",
	}
	code, out, errs := runs(t, env, hydra, "-launcher", "ssh", "-launcher-exec", fakeSSH(t), "-hosts", "a,b", "-n", "4", "-ppn", "2", runner, self(t))
	for _, want := range []string{"rank 0 of 4 with [0 1]", "rank 3 of 4 with [2 3]"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("code %d, %s, %s: expected %q", code, out, errs, want)
		}
	}
}
