package manifesttest

import (
	"slices"
	"strings"
	"testing"

	mpijob "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	lws "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/yaml"

	"github.com/mscclpp-go/mscclpp/launch/manifest"
)

// awkward is an argument with everything that YAML, shells and Kubernetes take for their own.
const awkward = "$(COLOR) $$(COLOR) $$ it's \"50%\": {a: [b]} # $HOME `x` \\ \t é &*!|>"

var job = manifest.Job{
	Name: "train", Image: "registry.example.com:5000/team/train:1.2", Hosts: 4, Ranks: "8", Run: "/opt/m/bin/mscclpp-run",
	Flags: []string{"--set", "comm.scratch=1MiB"}, Args: []string{"./train", awkward, "yes", "0x10", ""},
	Env: []string{"COLOR=no", "TEXT=" + awkward}, Secret: "train-secret", GPUs: 8, MasterPort: 29500,
}

// decode writes a manifest and reads it strictly: unknown and duplicate fields are
// errors.
func decode[T any](t *testing.T, j manifest.Job, kind string) (out T) {
	t.Helper()
	j.Kind = kind
	var b strings.Builder
	if err := manifest.Write(&b, j); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(b.String()), &out); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	return out
}

// expanded is what becomes of a word of a container's command, or of the value of a
// variable: $(NAME) is the value of a variable that is known, and $$ is $.
func expanded(word string, env map[string]string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(word, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		value, known := env[name]
		switch {
		case strings.HasPrefix(after, "$"):
			out.WriteString("$")
			word = after[1:]
		case strings.HasPrefix(after, "(") && closed && known:
			out.WriteString(value)
			word = rest
		default:
			out.WriteString("$")
			word = after
		}
	}
}

func TestStrictnessItself(t *testing.T) {
	var pod core.Pod
	for _, text := range []string{"spec: {nodeNam: x}", "spec: {}\nspec: {}"} {
		if err := yaml.UnmarshalStrict([]byte(text), &pod); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func sameType(t *testing.T, got metav1.TypeMeta, version, kind string) {
	t.Helper()
	if got.APIVersion != version || got.Kind != kind {
		t.Errorf("%+v: expected %s %s", got, version, kind)
	}
}

// container checks what all containers of ranks have, and returns the environment.
func container(t *testing.T, pod core.PodSpec, gpus bool) (core.Container, map[string]string) {
	t.Helper()
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers, expected 1", len(pod.Containers))
	}
	c := pod.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = expanded(e.Value, env)
	}
	for i, word := range c.Command {
		c.Command[i] = expanded(word, env)
	}
	if problems := validation.IsDNS1123Label(c.Name); c.Image != job.Image || len(problems) > 0 {
		t.Errorf("container %s of image %s: %v", c.Name, c.Image, problems)
	}
	if !gpus {
		return c, env
	}
	if limit := c.Resources.Limits["nvidia.com/gpu"]; limit.Value() != 8 {
		t.Errorf("limit of GPUs %v, expected 8", limit.Value())
	}
	if len(c.VolumeMounts) != 1 || len(pod.Volumes) != 1 || pod.Volumes[0].Secret == nil {
		t.Fatalf("mounts %+v of volumes %+v: expected one of a secret", c.VolumeMounts, pod.Volumes)
	}
	v, m := pod.Volumes[0], c.VolumeMounts[0]
	// Without write permission for others, which the bootstrap refuses.
	if v.Secret.SecretName != "train-secret" || *v.Secret.DefaultMode != 0o400 || m.Name != v.Name || !m.ReadOnly || m.MountPath+"/secret" != manifest.SecretFile {
		t.Errorf("mount %+v of volume %+v, mode %o", m, v.Secret, *v.Secret.DefaultMode)
	}
	return c, env
}

func variables(t *testing.T, env map[string]string) {
	t.Helper()
	if env["COLOR"] != "no" || env["TEXT"] != awkward || env["MSCCLPP_SECRET_FILE"] != manifest.SecretFile {
		t.Errorf("environment %q", env)
	}
}

func command(t *testing.T, c core.Container, want ...string) {
	t.Helper()
	want = append(want, "--set", "comm.scratch=1MiB", "--", "./train", awkward, "yes", "0x10", "")
	if !slices.Equal(c.Command, want) || c.Args != nil {
		t.Errorf("command %q %q\nexpected %q", c.Command, c.Args, want)
	}
}

func TestJobSet(t *testing.T) {
	got := decode[jobset.JobSet](t, job, "jobset")
	sameType(t, got.TypeMeta, jobset.GroupVersion.String(), "JobSet")
	if got.Name != "train" || len(got.Spec.ReplicatedJobs) != 1 || !*got.Spec.Network.EnableDNSHostnames || !*got.Spec.Network.PublishNotReadyAddresses {
		t.Fatalf("%+v", got)
	}
	r := got.Spec.ReplicatedJobs[0]
	s := r.Template.Spec
	if r.Replicas != 1 || *s.Completions != 4 || *s.Parallelism != 4 || *s.CompletionMode != batch.IndexedCompletion || *s.BackoffLimit != 0 || s.Template.Spec.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("%+v", s)
	}
	c, env := container(t, s.Template.Spec, true)
	variables(t, env)
	// JobSet's names of pods: SET-JOB-REPLICA-INDEX.SUBDOMAIN, where the subdomain is the set's.
	first := got.Name + "-" + r.Name + "-0-0." + got.Name
	command(t, c, "/opt/m/bin/mscclpp-run", "--nnodes", "4", "--master-addr", first, "--master-port", "29500", "--nproc-per-node", "8")
}

func TestLeaderWorkerSet(t *testing.T) {
	got := decode[lws.LeaderWorkerSet](t, job, "lws")
	sameType(t, got.TypeMeta, lws.GroupVersion.String(), "LeaderWorkerSet")
	s := got.Spec
	if *s.Replicas != 1 || *s.LeaderWorkerTemplate.Size != 4 || s.LeaderWorkerTemplate.RestartPolicy != lws.RecreateGroupOnPodRestart || s.LeaderWorkerTemplate.LeaderTemplate != nil {
		t.Errorf("%+v", s)
	}
	c, env := container(t, s.LeaderWorkerTemplate.WorkerTemplate.Spec, true)
	variables(t, env)
	if env["MASTER_PORT"] != "29500" {
		t.Errorf("port %q", env["MASTER_PORT"])
	}
	command(t, c, "/opt/m/bin/mscclpp-run", "--nproc-per-node", "8")
}

func TestMPIJob(t *testing.T) {
	got := decode[mpijob.MPIJob](t, job, "mpijob")
	sameType(t, got.TypeMeta, mpijob.SchemeGroupVersion.String(), "MPIJob")
	launcher, worker := got.Spec.MPIReplicaSpecs[mpijob.MPIReplicaTypeLauncher], got.Spec.MPIReplicaSpecs[mpijob.MPIReplicaTypeWorker]
	if launcher == nil || worker == nil || *launcher.Replicas != 1 || *worker.Replicas != 4 || *got.Spec.SlotsPerWorker != 8 || *got.Spec.RunPolicy.CleanPodPolicy != mpijob.CleanPodPolicyRunning {
		t.Fatalf("%+v", got.Spec)
	}
	if worker.Template.Spec.Containers[0].Command != nil {
		t.Error("workers have a command: the operator starts their sshd")
	}
	container(t, worker.Template.Spec, true)
	c, env := container(t, launcher.Template.Spec, false)
	variables(t, env)
	if !slices.Equal(c.Command[:2], []string{"sh", "-c"}) || !strings.Contains(c.Command[2], "/etc/mpi/hostfile") {
		t.Errorf("%q", c.Command[:3])
	}
	c.Command = c.Command[3:]
	command(t, c, "mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "32", "-x", "MSCCLPP_SECRET_FILE", "-x", "COLOR", "-x", "TEXT", "-x", "MASTER_PORT=29500", "/opt/m/bin/mscclpp-run")
}

// A part that is not asked for is not there, and a manifest with the least is one as well.
func TestTheLeast(t *testing.T) {
	least := manifest.Job{Name: "a", Image: "i", Hosts: 1, Ranks: "gpu", Run: "mscclpp-run", Args: []string{"p"}, Secret: "s"}
	set := decode[jobset.JobSet](t, least, "jobset")
	if c := set.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0]; c.Resources.Limits != nil || len(c.Env) != 1 || slices.Contains(c.Command, "--master-port") {
		t.Errorf("%+v", c)
	}
	group := decode[lws.LeaderWorkerSet](t, least, "lws")
	if c := group.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0]; !slices.Equal(c.Command, []string{"mscclpp-run", "--nproc-per-node", "gpu", "--", "p"}) || len(c.Env) != 1 {
		t.Errorf("%+v", c)
	}
	least.Ranks = "1"
	if mpi := decode[mpijob.MPIJob](t, least, "mpijob"); *mpi.Spec.SlotsPerWorker != 1 {
		t.Errorf("%+v", mpi.Spec)
	}
}
