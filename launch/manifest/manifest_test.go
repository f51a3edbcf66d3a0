package manifest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func job(kind string) Job {
	return Job{
		Kind: kind, Name: "train", Image: "example.com/train:1", Hosts: 2, Ranks: "8", Run: "mscclpp-run",
		Flags: []string{"--set", "comm.scratch=1MiB"}, Args: []string{"./train", "--text", `it's "50%"  $HOME`},
		Env: []string{"COLOR=light blue"}, Secret: "train-secret", GPUs: 8,
	}
}

func written(t *testing.T, j Job) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, j); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The batch script, run with stand-ins for Slurm: what reaches the ranks is what was
// asked for, and the secret goes with the script.
func TestBatchScriptRuns(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	dir := t.TempDir()
	srun := "#!/bin/sh\nstat -c %a \"$MSCCLPP_SECRET_FILE\"\nwc -c <\"$MSCCLPP_SECRET_FILE\"\necho \"$COLOR\"\nfor w; do echo \"<$w>\"; done\n"
	if err := os.WriteFile(filepath.Join(dir, "srun"), []byte(srun), 0o700); err != nil {
		t.Fatal(err)
	}
	j := job("sbatch")
	j.Image = ""
	text := written(t, j)
	for _, want := range []string{"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n", "#!/bin/bash\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	c := exec.CommandContext(t.Context(), bash, "-c", text)
	c.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := c.CombinedOutput()
	want := "600\n45\nlight blue\n<--ntasks-per-node=1>\n<--kill-on-bad-exit=1>\n<mscclpp-run>\n<--nproc-per-node>\n<8>\n<--set>\n<comm.scratch=1MiB>\n<-->\n<./train>\n<--text>\n<it's \"50%\"  $HOME>\n"
	if err != nil || string(out) != want {
		t.Errorf("%v:\n%s\nexpected:\n%s", err, out, want)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".mscclpp-secret*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestBatchScriptWithAContainer(t *testing.T) {
	text := written(t, job("sbatch"))
	if !strings.Contains(text, "--container-image=example.com/train:1") && !strings.Contains(text, "--container-image='example.com/train:1'") {
		t.Error(text)
	}
}

func TestNoSecretIsWritten(t *testing.T) {
	for _, kind := range Kinds() {
		text := written(t, job(kind))
		if !strings.Contains(text, "MSCCLPP_SECRET_FILE") {
			t.Errorf("%s: no secret file:\n%s", kind, text)
		}
		if strings.Contains(text, "<no value>") || strings.Contains(text, "\t-") {
			t.Errorf("%s:\n%s", kind, text)
		}
	}
}

// Kubernetes replaces $(NAME) in commands and variables of containers, and $$ by $.
func TestDollarsArriveInContainers(t *testing.T) {
	for _, kind := range []string{"jobset", "mpijob", "lws"} {
		j := job(kind)
		j.Args, j.Env = []string{"./train", "$(COLOR) $$ $HOME $"}, []string{"COLOR=$(RED) $$"}
		text := written(t, j)
		for _, want := range []string{`- "$$(COLOR) $$$$ $$HOME $$"`, `value: "$$(RED) $$$$"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s:\n%s", kind, want, text)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Job)
		want   string
	}{
		"kind":           {func(j *Job) { j.Kind = "pod" }, `kind "pod": expected one of sbatch, jobset, mpijob, lws`},
		"name":           {func(j *Job) { j.Name = "Train_1" }, `name "Train_1"`},
		"long name":      {func(j *Job) { j.Name = strings.Repeat("a", 41) }, "at most 40"},
		"no image":       {func(j *Job) { j.Image = "" }, "a jobset needs one"},
		"image":          {func(j *Job) { j.Image = "a b" }, `image "a b"`},
		"no hosts":       {func(j *Job) { j.Hosts = 0 }, "0 hosts: expected 1"},
		"ranks":          {func(j *Job) { j.Ranks = "many" }, `"many" ranks on each host`},
		"no ranks":       {func(j *Job) { j.Ranks = "0" }, `"0" ranks`},
		"a crowd":        {func(j *Job) { j.Ranks = "1025" }, `"1025" ranks on each host: expected 1 to 1024`},
		"ranks of mpi":   {func(j *Job) { j.Kind, j.Ranks = "mpijob", "gpu" }, "mpirun needs a number"},
		"run":            {func(j *Job) { j.Run = "a;b" }, "path"},
		"no program":     {func(j *Job) { j.Args = nil }, "no program"},
		"secret":         {func(j *Job) { j.Secret = "" }, "name of the secret"},
		"gpus":           {func(j *Job) { j.GPUs = -1 }, "-1 GPUs"},
		"port":           {func(j *Job) { j.MasterPort = 70000 }, "port 70000"},
		"variable":       {func(j *Job) { j.Env = []string{"A B=c"} }, `variable "A B=c"`},
		"two lines":      {func(j *Job) { j.Args = []string{"a\nb"} }, "expected a single line"},
		"lines of flags": {func(j *Job) { j.Flags = []string{"--set", "a\n- b"} }, "expected a single line"},
	} {
		j := job("jobset")
		c.change(&j)
		var b strings.Builder
		if err := Write(&b, j); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) || b.Len() > 0 {
			t.Errorf("%s: %v, %d bytes; expected %q and none", name, err, b.Len(), c.want)
		}
	}
}
