package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A flag that would be ignored beside another flag, or by a verb, is refused before anything runs.
func TestFlagsThatWouldBeIgnored(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "plan.py")
	if err := os.WriteFile(plan, []byte("raise SystemExit(9)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const one = "allreduce,f32,sum,1"
	for args, want := range map[string]string{
		"-n 1 check --tier full --case " + one:                        "check: --tier beside --case",
		"-n 1 check --case " + one + " --tier quick":                  "check: --tier beside --case", // also what is the default
		"-n 1 check --case " + one + " --at-most 3":                   "check: --at-most beside --case",
		"-n 1 check --list --at-most 3 --case " + one:                 "check: --at-most beside --case",
		"-n 1 bench allgather alltoall --root 1":                      "--root 1: none of the collectives has a root",
		"-n 1 bench allgather alltoall --op max":                      "--op max: none of the collectives reduces",
		"-n 1 tune allgather --op max":                                "--op max: none of the collectives reduces",
		"config --docs --format json":                                 "config: --format beside --docs",
		"config --docs --set log.level=none":                          "config --docs: it reads no configuration: expected no --set",
		"config --docs --config x.yaml":                               "config --docs: it reads no configuration: expected no --config",
		"topo --record --format json":                                 "topo: --format beside --record",
		"topo --record --svg x.svg":                                   "topo: --svg beside --record",
		"topo --svg - --format json":                                  "topo: --format beside --svg -",
		"topo --from x --transports shm":                              "topo: --transports beside --from",
		"topo --from x --config x.yaml":                               "topo: --config beside --from",
		"nccl --config x.yaml":                                        "nccl: it reads no configuration: expected no --config",
		"conform --list --device host":                                "conform: --device beside --list",
		"conform --list -v":                                           "conform: --verbose beside --list",
		"plan show --trace --svg - x.json":                            "plan show: --trace beside --svg -",
		"plan show x.json --trace y.json":                             "--trace=OUT with an equals sign",
		"plan compile " + plan + " --ranks 4":                         "plan compile: --ranks beside " + plan,
		"plan compile " + plan + " --in-place":                        "plan compile: --in-place beside " + plan,
		"plan compile " + plan + " --per-host 2":                      "plan compile: --per-host beside " + plan,
		"plan compile " + plan + " --blocks 2":                        "plan compile: --blocks beside " + plan,
		"plan check x.json --set log.level=none":                      "plan: it reads no configuration: expected no --set",
		"-n 2 config":                                                 "config: it starts no ranks: expected no --np",
		"conform --list --dry-run":                                    "conform: it starts no ranks: expected no --dry-run",
		"doctor -x A=B":                                               "doctor: it starts no ranks: expected no --export",
		"plugins --chdir /":                                           "plugins: it starts no ranks: expected no --chdir",
		"topo --nnodes 1":                                             "topo: it starts no ranks: expected no --nnodes",
		"plan show x.json --tee":                                      "plan: it starts no ranks: expected no --tee",
		"simulate --dry-run":                                          "simulate: it starts no ranks: expected no --dry-run",
		"--tee -n 1 true":                                             "--tee is for output that goes to files: expected --output-dir",
		"--tee --host localhost true":                                 "--tee is for output that goes to files: expected --output-dir",
		"--ssh rsh -n 1 true":                                         "--ssh is for a list of hosts: expected --host or --hostfile",
		"--agent /x -n 1 true":                                        "--agent is for a list of hosts: expected --host or --hostfile",
		"--emit sbatch --ssh rsh -n 1 true":                           "--ssh is for a list of hosts",
		"--rendezvous h:1 --master-addr h -n 1 true":                  "--master-addr beside --rendezvous",
		"--rendezvous h:1 -n 1 bench allreduce -b 1K --master-port 2": "--master-port beside --rendezvous",
	} {
		code, out, errs := runs(command(t, strings.Fields(args)...))
		if code != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %q, %s: expected code 2 and %q", args, code, out, errs, want)
		}
	}
	// Flags that have a use are accepted.
	for _, args := range []string{
		"config --set log.level=none", "config --docs", "topo --format json", "conform --list --run control", "-q config", "-n 4 config --help",
		"--tee --output-dir " + dir + " -n 1 --dry-run true", "--ssh rsh --agent /x --hostfile " + hosts + " -n 1 --dry-run true",
		"--emit sbatch --agent /x -n 1 true", "--rendezvous h:1 -n 1 --dry-run true", "-n 1 --dry-run bench allgather allreduce --op max",
		"-n 1 --dry-run check --tier full --at-most 3", "-n 1 --dry-run bench allgather broadcast --root 0",
	} {
		if code, _, errs := runs(command(t, strings.Fields(args)...)); code != 0 {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
}
