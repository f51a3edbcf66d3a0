package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// modeVar makes the test binary a rank; its value says what the rank does.
const modeVar = "ENGINE_TEST_MODE"

// runner is mscclpp-run, built from this tree for these tests.
var runner string

// runnerVariable names the launcher that tests start; else they build one.
const runnerVariable = "ENGINE_TEST_RUNNER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVar); mode != "" {
		os.Exit(rank(mode))
	}
	// The engine that started the tests is not to be taken for the one that starts the jobs.
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		for _, prefix := range []string{"MSCCLPP_", "OMPI_", "PMI", "SLURM_JOB", "SLURM_STEP", "SLURM_PROC"} {
			if strings.HasPrefix(name, prefix) {
				os.Unsetenv(name)
			}
		}
	}
	os.Exit(withRunner(m))
}

func withRunner(m *testing.M) int {
	dir, err := os.MkdirTemp("", "enginetest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	runner = filepath.Join(dir, "mscclpp-run")
	goTool := os.Getenv("GO")
	if goTool == "" {
		goTool = "go"
	}
	if given := os.Getenv(runnerVariable); given != "" {
		runner = given
	} else if out, err := exec.Command(goTool, "build", "-o", runner, "../../cmd/mscclpp-run").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build mscclpp-run: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// patience is longer than anything in a test takes, on a machine that does much else as well.
const patience = 3 * time.Minute

// rank is what a rank does: it joins the job that its environment describes and
// prints its place.
func rank(mode string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	options := []mscclpp.Option{
		mscclpp.WithSetting("transports", "shm"), mscclpp.WithSetting("plugins.embed", "shm"),
		mscclpp.WithSetting("log.level", "none"),
	}
	if mode == "meet" || mode == "wait" {
		return meet(ctx, mode)
	}
	job, err := mscclpp.Init(ctx, options...)
	if err != nil {
		fmt.Println("failed:", err)
		return 3
	}
	defer job.Close()
	if err := ring(ctx, job.World); err != nil {
		fmt.Println("failed:", err)
		return 4
	}
	fmt.Printf("rank %d of %d\n", job.Rank(), job.Size())
	return 0
}

// meet joins by the bootstrap alone, which needs no transport between hosts.
func meet(ctx context.Context, mode string) int {
	cfg, err := bootstrap.FromEnv(os.Getenv)
	if err == nil && os.Getenv("ENGINE_TEST_TIMEOUT") != "" {
		cfg.Timeout, err = time.ParseDuration(os.Getenv("ENGINE_TEST_TIMEOUT"))
	}
	var b *bootstrap.TCP
	if err == nil {
		b, err = bootstrap.Join(ctx, cfg)
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 3
	}
	defer b.Close()
	if err := bootstrap.Barrier(ctx, b, 1); err != nil {
		fmt.Println("failed:", err)
		return 4
	}
	fmt.Printf("rank %d of %d with %v on this host, local %s of %s, host %s\n", b.Rank(), b.Size(), b.HostRanks(), os.Getenv("LOCAL_RANK"), os.Getenv("LOCAL_WORLD_SIZE"), os.Getenv("GROUP_RANK"))
	if mode == "wait" { // for the end of the job, in whatever way it comes
		fmt.Printf("pid %d of rank %d agent %d\n", os.Getpid(), b.Rank(), os.Getppid())
		<-b.Failed()
		fmt.Println("noticed:", b.Err())
		return 5
	}
	b.Leave()
	return 0
}

// ring passes a signal around all ranks, so that each talks to two others.
func ring(ctx context.Context, c *comm.Communicator) error {
	if c.Size() == 1 {
		return c.Barrier(ctx)
	}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	m, err := c.Alloc(4096)
	if err != nil {
		return err
	}
	// Each pair makes its channels in the same order: even ranks turn to the next first.
	order := []int{next, previous}
	if c.Rank()%2 == 1 {
		order = []int{previous, next}
	}
	slices.Sort(order)
	channels := map[int]*comm.PortChannel{}
	for _, peer := range slices.Compact(order) {
		if channels[peer], err = c.PortChannel(ctx, peer, m, m); err != nil {
			return err
		}
	}
	if err := errors.Join(channels[next].PutWithSignal(64, 0, 64), channels[previous].Wait(ctx)); err != nil {
		return err
	}
	return c.Barrier(ctx)
}

// started is a program on its way.
type started struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

// program prepares a program with variables on top of the test's own. It runs in a
// group of its own, which is killed when it takes longer than the bound.
func program(t *testing.T, bound time.Duration, env []string, args ...string) *started {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	s := &started{Cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	s.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	s.Env = append(s.Env, env...)
	s.Stdout, s.Stderr = &s.out, &s.errs
	s.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.Cancel = func() error { return syscall.Kill(-s.Process.Pid, syscall.SIGKILL) }
	s.WaitDelay = 5 * time.Second
	return s
}

// runs runs a program to its end.
func runs(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	s := program(t, 2*patience, env, args...)
	if err := s.Run(); err != nil && s.ProcessState == nil {
		t.Fatal(err)
	}
	return s.ProcessState.ExitCode(), s.out.String(), s.errs.String()
}

// places are the lines of all ranks, in order.
func places(out string) []string {
	var lines []string
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "rank ") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// ranks are the lines that the ranks of a job print that call Init.
func ranks(n int) []string {
	var lines []string
	for r := range n {
		lines = append(lines, fmt.Sprintf("rank %d of %d", r, n))
	}
	return lines
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// installed finds a program, or skips.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: see scripts/deps.sh engines", name)
	}
	return path
}

// secret is a file with what all ranks of a job know.
func secret(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fakeSSH is a program that is called like ssh, stays on this machine and gives each
// "host" an identity of its own. Hosts named down refuse, hosts named silent never
// answer, and those named bare have no mscclpp-run.
func fakeSSH(t *testing.T) string {
	t.Helper()
	// A short name: daemons of Open MPI put sockets there.
	dir, err := os.MkdirTemp("", "ssh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "ssh")
	script := `#!/bin/sh
while :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=$1
shift
case $host in
down*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
silent*) exec sleep 1000 ;;
bare*) PATH=/nonexistent; exec /bin/sh -c "/nonexistent$*" ;;
chatty*) echo "Welcome to $host!" ;;
esac
# Hosts have a folder for temporary files each; Open MPI's daemons rely on it.
mkdir -p ` + dir + `/$host
MSCCLPP_HOSTID=$host TMPDIR=` + dir + `/$host exec /bin/sh -c "$*"
`
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}
