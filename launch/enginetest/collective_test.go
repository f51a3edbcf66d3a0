package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// check is a verb whose four ranks, on two hosts, call collectives and verify them. Its
// log says which ranks are linked by which transport.
var check = []string{"--nproc-per-node", "2", "check", "--at-most", "5", "--transports", "shm,tcp", "--log-level", "debug"}

// builtPlugins is a variable that leads to the plugins of this tree.
func builtPlugins(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../bin/plugins")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shm", "tcp"} {
		if _, err := os.Stat(filepath.Join(dir, "mscclpp-transport-"+name)); err != nil {
			unbuilt(t, "plugins", "make build")
		}
	}
	return "MSCCLPP_PLUGINS__DIRS=" + dir
}

// unbuilt ends a test that lacks what another command builds. `make engines-test` has
// built it.
func unbuilt(t *testing.T, what, builds string) {
	t.Helper()
	if os.Getenv(runnerVariable) != "" {
		t.Fatalf("no %s in bin: expected that %s has built them", what, builds)
	}
	t.Skipf("no %s in bin: %s builds them", what, builds)
}

// crosses runs a job whose ranks check collectives. They have to be right, and to have
// gone both ways: through shared memory inside the hosts, and from host to host by tcp.
func crosses(t *testing.T, env []string, args ...string) {
	t.Helper()
	code, out, errs := runs(t, env, args...)
	if strings.Contains(errs, "make kernels") {
		unbuilt(t, "kernels of this tree", "make kernels")
	}
	if code != 0 || !strings.Contains(out, "5 passed, 0 failed\n") {
		t.Fatalf("code %d, %s, %s: expected 5 cases that pass", code, out, errs)
	}
	for _, transport := range []string{"shm", "tcp"} {
		if !slices.ContainsFunc(strings.Split(out+errs, "\n"), func(line string) bool {
			return strings.Contains(line, "msg=linked") && strings.Contains(line, "transport="+transport)
		}) {
			t.Errorf("no ranks are linked by %s: %s", transport, errs)
		}
	}
}

func TestCollectivesOverHosts(t *testing.T) {
	env := []string{builtPlugins(t)}
	crosses(t, env, over(t, "a,b", check...)...)
}

// Agents meet where MASTER_ADDR says, by a secret that the user brings.
func agentsMeet(t *testing.T) []string {
	t.Helper()
	return []string{builtPlugins(t), "MASTER_ADDR=127.0.0.1", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
}

func TestCollectivesOverHostsOfOpenMPI(t *testing.T) {
	args := []string{"--mca", "plm_rsh_agent", fakeSSH(t), "-H", "a:1,b:1", "-n", "2"}
	for _, name := range []string{"MASTER_ADDR", "MSCCLPP_SECRET_FILE", "MSCCLPP_PLUGINS__DIRS"} {
		args = append(args, "-x", name)
	}
	crosses(t, agentsMeet(t), openMPI(t, slices.Concat(args, []string{runner}, check)...)...)
}

func TestCollectivesOverHostsOfMPICH(t *testing.T) {
	hydra := installed(t, "mpiexec.hydra")
	args := []string{hydra, "-launcher", "ssh", "-launcher-exec", fakeSSH(t), "-hosts", "a,b", "-n", "2", "-ppn", "1", runner}
	crosses(t, agentsMeet(t), append(args, check...)...)
}

func TestCollectivesOverHostsOfSlurm(t *testing.T) {
	srun := slurm(t)
	env := []string{builtPlugins(t), "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
	args := []string{srun, "-N", "2", "--ntasks-per-node=1", "sh", "-c", agents, runner}
	crosses(t, env, append(args, check...)...)
}
