package main

import (
	"strings"
	"testing"
)

func TestEmit(t *testing.T) {
	c := command(t, "--emit", "jobset", "--image", "img:1", "--nnodes", "3", "-n", "8", "--gpus-per-node", "8", "--log-level", "info",
		"-x", "A=b", "-x", "HAVE", "/opt/Train_it.py", "--epochs", "2")
	c.Env = append(c.Env, "HAVE=it")
	code, out, errs := runs(c)
	if code != 0 || errs != "" {
		t.Fatalf("code %d, %s", code, errs)
	}
	for _, want := range []string{"kind: JobSet\n", `name: "train-it-py"`, `"train-it-py-ranks-0-0.train-it-py"`, "completions: 3\n", "nvidia.com/gpu: 8\n",
		"- \"--set\"\n                  - \"log.level=info\"\n", "- \"/opt/Train_it.py\"\n                  - \"--epochs\"\n", `secretName: "train-it-py-secret"`,
		"name: \"HAVE\"\n                    value: \"it\"\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	// A verb is one of the mscclpp-run that is there.
	code, out, errs = runs(command(t, "--emit", "sbatch", "-N", "2", "-n", "4", "bench", "allreduce", "--bytes", "1K:4K"))
	if code != 0 || !strings.Contains(out, "mscclpp-run --nproc-per-node 4 bench allreduce --bytes 1K:4K\n") {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

// A flag for the launcher is passed on to the one on the hosts.
func TestEmittedFlags(t *testing.T) {
	code, out, errs := runs(command(t, "--emit", "sbatch", "-n", "2", "--chdir", "/my work", "--tee", "--report-bindings", "--no-stdin", "-q", "--tag-output", "./train"))
	want := "mscclpp-run --nproc-per-node 2 --tee --report-bindings --no-stdin --quiet --chdir '/my work' --set launch.tag_output=true -- ./train\n"
	if code != 0 || !strings.Contains(out, want) {
		t.Errorf("code %d, %s, %s; expected %s", code, out, errs, want)
	}
}

func TestEmitMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		`kind "pod": expected one of sbatch`:            {"--emit", "pod", "true"},
		"a jobset needs one":                            {"--emit", "jobset", "true"},
		"the engine chooses the hosts":                  {"--emit", "sbatch", "--host", "a,b", "true"},
		"the engine says which host is which":           {"--emit", "sbatch", "--nnodes", "2", "--node-rank", "0", "true"},
		"-x LACK: not set here":                         {"--emit", "sbatch", "-x", "LACK", "true"},
		"mpirun needs a number":                         {"--emit", "mpijob", "--image", "i", "--nproc-per-node", "gpu", "true"},
		"expected a program or a verb":                  {"--emit", "sbatch"},
		"-n 2 and --nproc-per-node 3":                   {"--emit", "sbatch", "-n", "2", "--nproc-per-node", "3", "true"},
		`name "Train": expected at most 40`:             {"--emit", "sbatch", "--job-name", "Train", "true"},
		"--nnodes -1: expected at least 1":              {"--emit", "sbatch", "--nnodes", "-1", "true"},
		"--nnodes 0: expected at least 1":               {"--emit", "sbatch", "--nnodes", "0", "true"},
		`unknown key "foo"`:                             {"--emit", "sbatch", "--set", "foo.bar=1", "true"},
		`--log-level: log.level: "loud"`:                {"--emit", "sbatch", "--log-level", "loud", "true"},
		`"1025" ranks on each host: expected 1 to 1024`: {"--emit", "sbatch", "-n", "1025", "true"},
	} {
		code, out, errs := runs(command(t, args...))
		if code != 2 || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%v: code %d, %q, %q; expected %q", args, code, errs, out, want)
		}
	}
}

func TestNamesOfJobs(t *testing.T) {
	for program, want := range map[string]string{
		"/a/b/Train_it.py": "train-it-py", "7b": "job-7b", "...": "job", "x": "x",
		strings.Repeat("a-", 30): strings.TrimRight(strings.Repeat("a-", 30)[:33], "-"),
	} {
		if got := jobNameOf(program); got != want {
			t.Errorf("%q: %q, expected %q", program, got, want)
		}
	}
}

// A job is named by what it does, not by what runs it.
func TestNamesOfScripts(t *testing.T) {
	for line, want := range map[string]string{
		"python train.py": "train-py", "python3 -u /a/b/Train_it.py --lr 1": "train-it-py", "/usr/bin/python3.12 -X dev -W ignore train.py": "train-py",
		"python -m torch.bench x.py": "torch-bench", "python -c pass": "python", "python": "python", "bash -x run.sh": "run-sh", "sh -c true": "sh",
		"./train": "train", "train.py 3": "train-py", "/opt/pythonic x.py": "pythonic",
	} {
		c := command(t, append([]string{"--emit", "sbatch", "-n", "1", "--"}, strings.Fields(line)...)...)
		code, out, errs := runs(c)
		if code != 0 || !strings.Contains(out, "#SBATCH --job-name="+want+"\n") {
			t.Errorf("%s: code %d, %s%s: expected the name %q", line, code, out, errs, want)
		}
	}
}
