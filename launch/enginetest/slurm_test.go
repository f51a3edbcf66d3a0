package enginetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// slurm finds srun, and hosts for it: n1 and n2, as scripts/slurm-test.sh sets them up.
func slurm(t *testing.T) string {
	t.Helper()
	srun := installed(t, "srun")
	if os.Getenv("SLURM_CONF") == "" {
		t.Skip("no Slurm cluster: scripts/slurm-test.sh makes one")
	}
	return srun
}

func TestSlurmStartsRanks(t *testing.T) {
	srun := slurm(t)
	for name, args := range map[string][]string{
		"the program alone":   {"-N", "1", "-n", "4", self(t)},
		"through mscclpp-run": {"-N", "1", "-n", "4", runner, self(t)},
		"on two hosts":        {"-N", "2", "-n", "4", self(t)},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runs(t, []string{modeVar + "=init"}, append([]string{srun}, args...)...)
			if code != 0 || !slices.Equal(places(out), ranks(4)) {
				t.Errorf("code %d, %s, %s: expected one job of 4", code, out, errs)
			}
		})
	}
}

// agents is a line for a shell that gives each of Slurm's hosts an identity of its own.
const agents = `MSCCLPP_HOSTID=$SLURMD_NODENAME exec "$0" "$@"`

var twoByTwo = []string{
	"rank 0 of 4 with [0 1] on this host, local 0 of 2, host 0",
	"rank 1 of 4 with [0 1] on this host, local 1 of 2, host 0",
	"rank 2 of 4 with [2 3] on this host, local 0 of 2, host 1",
	"rank 3 of 4 with [2 3] on this host, local 1 of 2, host 1",
}

func TestSlurmStartsNodeAgents(t *testing.T) {
	srun := slurm(t)
	env := []string{modeVar + "=meet", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
	code, out, errs := runs(t, env, srun, "-N", "2", "--ntasks-per-node=1", "sh", "-c", agents, runner, "-n", "2", self(t))
	if code != 0 || !slices.Equal(places(out), twoByTwo) {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

// In a job of Slurm mpiexec starts its helpers by srun, one on each host. Their children have the
// variables of that step, which is neither theirs nor that of their agents.
func TestMPICHInsideAJobOfSlurm(t *testing.T) {
	slurm(t)
	hydra := installed(t, "mpiexec.hydra")
	inside := func(hydraArgs []string, program ...string) (int, string, string) {
		env := []string{modeVar + "=meet", "MASTER_ADDR=n1", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
		return runs(t, env, slices.Concat([]string{"salloc", "-N", "2", "--ntasks-per-node=2", hydra}, hydraArgs, []string{"sh", "-c", agents}, program)...)
	}
	code, out, errs := inside([]string{"-n", "4", "-ppn", "2"}, runner, self(t))
	lines := places(out)
	for i, want := range twoByTwo {
		if want, _, _ = strings.Cut(want, ", host "); code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[i], want) {
			t.Errorf("ranks: code %d, %s, %s: expected %q", code, out, errs, want)
		}
	}
	code, out, errs = inside([]string{"-n", "2", "-ppn", "1"}, runner, "-n", "2", self(t))
	if code != 0 || !slices.Equal(places(out), twoByTwo) {
		t.Errorf("agents: code %d, %s, %s", code, out, errs)
	}
	code, out, errs = inside([]string{"-pmi-port", "-n", "4", "-ppn", "2"}, runner, self(t))
	if code == 0 || len(places(out)) > 0 || !strings.Contains(out+errs, "leave out -pmi-port") {
		t.Errorf("ranks by a port: code %d, %s, %s: expected a refusal", code, out, errs)
	}
}

// A batch script carries variables of a rank and is none.
func TestSlurmBatchScript(t *testing.T) {
	slurm(t)
	dir := t.TempDir()
	out, end := filepath.Join(dir, "out"), filepath.Join(dir, "end")
	script := "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1 --output=" + out + "\n" +
		runner + " -n 2 sh -c 'echo alone $RANK of $WORLD_SIZE'\n" +
		"srun sh -c '" + agents + "' " + runner + " -n 2 " + self(t) + "\necho $? >" + end + ".new; mv " + end + ".new " + end + "\n"
	file := filepath.Join(dir, "job")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{modeVar + "=meet", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")}
	if code, said, errs := runs(t, env, "sbatch", file); code != 0 {
		t.Fatalf("sbatch: code %d, %s, %s", code, said, errs)
	}
	for bound := time.Now().Add(patience); !exists(end) && time.Now().Before(bound); {
		time.Sleep(20 * time.Millisecond)
	}
	code, err := os.ReadFile(end)
	text, _ := os.ReadFile(out)
	if err != nil || string(code) != "0\n" || !slices.Equal(places(string(text)), twoByTwo) || strings.Count(string(text), "of 2\n") != 2 {
		t.Errorf("%v, code %s, %s", err, code, text)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// The output of --emit is a script that Slurm takes.
func TestSlurmTakesTheEmittedScript(t *testing.T) {
	slurm(t)
	dir := t.TempDir()
	end := filepath.Join(dir, "end")
	code, script, errs := runs(t, nil, runner, "--emit", "sbatch", "--nnodes", "2", "-n", "2", "--agent", runner, "-x", modeVar+"=meet",
		"sh", "-c", `"$1" >`+dir+`/$RANK.new; mv `+dir+`/$RANK.new `+dir+`/$RANK.out`, "sh", self(t))
	if code != 0 {
		t.Fatalf("code %d, %s", code, errs)
	}
	file := filepath.Join(dir, "job")
	if err := os.WriteFile(file, []byte(script+"echo done >"+end+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said, errs := runs(t, []string{"MSCCLPP_SECRET_DIR=" + dir}, "sbatch", "--output="+filepath.Join(dir, "log"), file); code != 0 {
		t.Fatalf("sbatch: code %d, %s, %s\n%s", code, said, errs, script)
	}
	for bound := time.Now().Add(patience); !exists(end) && time.Now().Before(bound); {
		time.Sleep(20 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	for r := range 4 {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(r, ".out")))
		if want := fmt.Sprintf("rank %d of 4 ", r); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("rank %d: %q, %v\n%s", r, text, err, log)
		}
	}
	secrets := func() []string {
		left, _ := filepath.Glob(filepath.Join(dir, ".mscclpp-secret*"))
		return left
	}
	for bound := time.Now().Add(patience); len(secrets()) > 0 && time.Now().Before(bound); {
		time.Sleep(20 * time.Millisecond)
	}
	if left := secrets(); len(left) > 0 {
		t.Errorf("the secret outlived the job: %v", left)
	}
}

// The code of a failed rank is that of the step. Ending the other hosts is Slurm's part.
func TestSlurmSeesAFailedRank(t *testing.T) {
	srun := slurm(t)
	code, _, errs := runs(t, nil, srun, "-N", "2", "--ntasks-per-node=1", runner, "-n", "2", "sh", "-c", "test $RANK != 3 || exit 7")
	if code != 7 || !strings.Contains(errs, "rank 3 (pid ") {
		t.Errorf("code %d, %s: expected 7", code, errs)
	}
	code, _, errs = runs(t, nil, srun, "-N", "2", "--ntasks-per-node=1", "--kill-on-bad-exit=1",
		runner, "-n", "2", "--linger", "0s", "sh", "-c", "test $RANK != 3 || exit 7; exec sleep 100")
	if code == 0 || !strings.Contains(errs, "exited with code 7") {
		t.Errorf("code %d, %s: expected the end of all", code, errs)
	}
}

// Canceling the job leaves no rank.
func TestSlurmCancel(t *testing.T) {
	srun := slurm(t)
	s := program(t, 2*patience, []string{modeVar + "=wait", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")},
		srun, "-N", "2", "--ntasks-per-node=1", "--job-name=canceled", runner, "-n", "2", self(t))
	lines := s.follow(t)
	pids := lines.pids(t, 4)
	if out, err := exec.Command("scancel", "--name=canceled").CombinedOutput(); err != nil {
		t.Fatalf("scancel: %v, %s", err, out)
	}
	if err := s.Wait(); err == nil {
		t.Error("srun ended in order although its job was canceled")
	}
	gone(t, pids)
}
