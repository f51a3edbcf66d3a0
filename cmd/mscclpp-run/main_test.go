package main

import (
	"bytes"
	"cmp"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/internal/loopback/sixonly"
)

// asProgram makes the test binary behave as mscclpp-run.
const asProgram = "RUN_TEST_AS_PROGRAM"

// withIPv6Alone makes that program change the host, which is its own network namespace, to one with IPv6 alone.
const withIPv6Alone = "RUN_TEST_WITH_IPV6_ALONE"

func TestMain(m *testing.M) {
	if what, is := os.LookupEnv(asRank); is && cmp.Or(os.Getenv("RANK"), os.Getenv("OMPI_COMM_WORLD_RANK")) != "" {
		os.Unsetenv(asRank) // so that it starts nothing of its kind
		os.Exit(beRank(what))
	}
	if os.Getenv(asProgram) != "" {
		if os.Getenv(withIPv6Alone) != "" {
			if err := sixonly.Here(); err != nil {
				panic(err)
			}
			os.Unsetenv(withIPv6Alone) // for the ranks
		}
		main()
		return
	}
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// command is mscclpp-run in a process of its own, in an environment without an engine and without a
// user's configuration.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = []string{asProgram + "=1", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	c.WaitDelay = 20 * time.Second
	return c
}

// runs runs mscclpp-run to its end.
func runs(c *exec.Cmd) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		return -1, "", err.Error()
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

func sortedLines(s string) []string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	slices.Sort(lines)
	return lines
}

func TestSpellingsOfTheNumberOfRanks(t *testing.T) {
	for _, flags := range [][]string{{"-n", "2"}, {"-n2"}, {"-np", "2"}, {"--np", "2"}, {"--np=2"}, {"--nproc", "2"},
		{"--nproc-per-node", "2"}, {"--nproc_per_node=2"}, {"-oversubscribe", "-np", "2", "-bind-to", "none"}} {
		code, out, errs := runs(command(t, append(flags, "sh", "-c", "echo $RANK/$WORLD_SIZE", "-n", "7")...))
		if lines := sortedLines(out); code != 0 || !slices.Equal(lines, []string{"0/2", "1/2"}) {
			t.Errorf("%v: code %d, %q, %s", flags, code, lines, errs)
		}
	}
}

// A job that nohup has started does not end with its terminal.
func TestNohup(t *testing.T) {
	c := command(t, "-n", "1", "sh", "-c", "echo ready; read line; exit 7")
	c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`}, append([]string{c.Path}, c.Args[1:]...)...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 7 {
		t.Errorf("%v, expected the code of the rank", err)
	}
}

// An error for which nobody has room keeps no signal from ending the program.
func TestErrorThatNobodyReads(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	ssh := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\n>"+began+"\nexit 255\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if err := write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; { // until it is full
		_, err = write.Write(make([]byte, 4096))
	}
	c := command(t, "--host", "a", "-n", "1", "--ssh", "/bin/sh "+ssh, "true")
	c.Stderr = write
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	for deadline := time.After(setUpBound); ; {
		if _, err := os.Stat(began); err == nil { // it hears signals, until the job is over
			_ = c.Process.Signal(syscall.SIGTERM)
		}
		select {
		case <-ended:
			return
		case <-deadline:
			_ = c.Process.Kill()
			<-ended
			t.Fatal("it has not ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestProgramKeepsItsFlags(t *testing.T) {
	code, out, errs := runs(command(t, "-n", "1", "echo", "-np", "--help", "--", "-n"))
	if code != 0 || out != "-np --help -- -n\n" {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
}

func TestDoubleDashMakesAProgramOfAVerb(t *testing.T) {
	c := command(t, "--", "config")
	c.Env = append(c.Env, "PATH=/nonexistent")
	code, _, errs := runs(c)
	if code != 127 || !strings.Contains(errs, "program config: not found in PATH") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
		want   string
	}{
		{"exit 0", 0, ""},
		{"test $RANK = 0 || exit 7", 7, "rank 1 (pid "},
		{"test $RANK = 1 || kill -SEGV $$", 139, "was killed by signal 11 (SIGSEGV)"},
	} {
		code, _, errs := runs(command(t, "-n", "2", "--linger", "0s", "sh", "-c", c.script))
		if code != c.code || !strings.Contains(errs, c.want) || c.code == 0 && errs != "" {
			t.Errorf("%s: code %d, %q", c.script, code, errs)
		}
	}
	if code, _, errs := runs(command(t, "-n", "2", "-q", "false")); code != 1 || errs != "" {
		t.Errorf("quiet: code %d, %q", code, errs)
	}
}

func TestExportedVariables(t *testing.T) {
	c := command(t, "-n", "1", "-x", "A=b=c", "-x", "HAVE", "-x", "LACK", "--log-level", "info", "--set", "comm.scratch=1MiB",
		"sh", "-c", "echo $A $HAVE $MSCCLPP_LOG__LEVEL $MSCCLPP_COMM__SCRATCH")
	c.Env = append(c.Env, "HAVE=it", "MSCCLPP_LOG__LEVEL=error")
	code, out, errs := runs(c)
	if code != 0 || out != "b=c it info 1MiB\n" || !strings.Contains(errs, "-x LACK: not set here") {
		t.Errorf("code %d, %q, %q", code, out, errs)
	}
}

func TestRanksCanMeet(t *testing.T) {
	code, out, errs := runs(command(t, "-n", "2", "--tag-output", "sh", "-c",
		`case $MSCCLPP_UNIQUE_ID in mscclpp1-*) echo "id $MASTER_ADDR ${MSCCLPP_LISTEN_FD:-none} $((MASTER_PORT > 0))";; esac`))
	if want := []string{"[0] id 127.0.0.1 3 1", "[1] id 127.0.0.1 none 1"}; code != 0 || !slices.Equal(sortedLines(out), want) {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
}

// The listener of a job on one host is of the family that the ranks will insist on.
func TestRendezvousHonorsTheFamily(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 on the loopback interface: %v", err)
	} else {
		l.Close()
	}
	for family, want := range map[string]string{"": "127.0.0.1", "inet": "127.0.0.1", "inet6": "::1"} {
		code, out, errs := runs(command(t, "-n", "1", "--set", "bootstrap.family="+family, "sh", "-c", "echo $MSCCLPP_UNIQUE_ID"))
		id, err := bootstrap.ParseUniqueID(out)
		if code != 0 || err != nil || len(id.Addresses()) != 1 || id.Addresses()[0].Addr().String() != want {
			t.Errorf("family %q: code %d, an id for %v, %v, %s: expected one for %s", family, code, id.Addresses(), err, errs, want)
		}
	}
}

// A job inside a rank is a job of its own and not part of the outer one.
func TestJobInsideAJob(t *testing.T) {
	code, out, errs := runs(command(t, "-n", "1", "sh", "-c", `"$0" -n 2 sh -c 'echo $RANK/$WORLD_SIZE ${MSCCLPP_LISTEN_FD:-none}'`, os.Args[0]))
	if want := []string{"0/2 3", "1/2 none"}; code != 0 || !slices.Equal(sortedLines(out), want) {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
}

// Nor does it take the names of the outer one's flags away, by which ranks blame them.
func TestFlagsOfAJobAroundAJob(t *testing.T) {
	code, out, errs := runs(command(t, "-n", "1", "--set", "comm.scratch=1MiB", "--bind-to", "none", "sh", "-c", `"$0" -n 1 --log-level info sh -c 'echo $MSCCLPP_FLAGS'`, os.Args[0]))
	if want := "MSCCLPP_COMM__SCRATCH=--set,MSCCLPP_LAUNCH__BIND=--bind-to,MSCCLPP_LOG__LEVEL=--log-level\n"; code != 0 || out != want {
		t.Errorf("code %d, %q, %s: expected %q", code, out, errs, want)
	}
}

func TestUnderAnEngine(t *testing.T) {
	slurm := []string{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=2"}
	c := command(t, "sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR")
	c.Env = append(c.Env, slurm...)
	if code, out, errs := runs(c); code != 0 || out != "1/2 1/2 127.0.0.1\n" {
		t.Errorf("as a rank: code %d, %q, %s", code, out, errs)
	}
	c = command(t, "-n", "2", "true")
	c.Env = append(c.Env, slurm...)
	if code, _, errs := runs(c); code != 2 || !strings.Contains(errs, "Slurm made this process rank 1 of 2") {
		t.Errorf("ranks in a rank: code %d, %s", code, errs)
	}
	c = command(t, "-n", "2", "--standalone", "true")
	c.Env = append(c.Env, slurm...)
	if code, _, errs := runs(c); code != 0 {
		t.Errorf("standalone: code %d, %s", code, errs)
	}
	flux := []string{"FLUX_JOB_ID=f2", "FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=2", "FLUX_TASK_LOCAL_ID=0", "FLUX_JOB_NNODES=2"}
	c = command(t, "-n", "2", "true")
	c.Env = append(c.Env, flux...)
	if code, _, errs := runs(c); code != 2 || !strings.Contains(errs, "a job of 2 hosts, and Flux does not say which host has rank 0: expected --master-addr") {
		t.Errorf("without a meeting point: code %d, %s", code, errs)
	}
	c = command(t, "-n", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE $MASTER_ADDR")
	c.Env = append(append(c.Env, flux...), "MASTER_ADDR=h")
	if code, out, errs := runs(c); code != 0 || strings.Join(sortedLines(out), " ") != "2/4 h 3/4 h" {
		t.Errorf("as node agent of Flux: code %d, %q, %s", code, out, errs)
	}
	c = command(t, "-n", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $MSCCLPP_JOB_ID ${MSCCLPP_UNIQUE_ID:-none}")
	c.Env = append(c.Env, "LWS_LEADER_ADDRESS=lead", "LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX=1")
	want := []string{"2/4 1 lead:29400 job@lead:29400 none", "3/4 1 lead:29400 job@lead:29400 none"}
	if code, out, errs := runs(c); code != 0 || !slices.Equal(sortedLines(out), want) {
		t.Errorf("as node agent: code %d, %q, %s", code, out, errs)
	}
}

// Variables that number something, without saying where it meets, are not passed over.
func TestRankAndSizeAlone(t *testing.T) {
	for _, args := range [][]string{{"-n", "2", "true"}, {"true"}, {"-n", "1", "check"}} {
		c := command(t, args...)
		c.Env = append(c.Env, "RANK=1", "WORLD_SIZE=2")
		code, _, errs := runs(c)
		if code != 2 || !strings.Contains(errs, "RANK=1 and WORLD_SIZE=2 are set, and LOCAL_RANK and MASTER_ADDR are not: expected") || !strings.Contains(errs, "--standalone") {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
	for _, add := range []struct{ flag, variable, want string }{
		{"--master-addr=h", "A=b", "2/4 3/4"}, {"--quiet", "MASTER_ADDR=h", "2/4 3/4"}, {"--standalone", "A=b", "0/2 1/2"}, {"--quiet", "WORLD_SIZE=1", "0/2 1/2"},
	} {
		c := command(t, add.flag, "-n", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE")
		rank := "RANK=1"
		if add.variable == "WORLD_SIZE=1" {
			rank = "RANK=0"
		}
		c.Env = append(c.Env, rank, "WORLD_SIZE=2", add.variable)
		if code, out, errs := runs(c); code != 0 || strings.Join(sortedLines(out), " ") != add.want {
			t.Errorf("%s %s: code %d, %q, %s: expected %s", add.flag, add.variable, code, out, errs, add.want)
		}
	}
}

// Nor is one of them without the other.
func TestRankOrSizeAlone(t *testing.T) {
	for set, missing := range map[string]string{"RANK=1": "WORLD_SIZE", "WORLD_SIZE=2": "RANK", "FLUX_TASK_RANK=1": "FLUX_JOB_SIZE"} {
		c := command(t, "-n", "2", "true")
		c.Env = append(c.Env, set)
		if code, _, errs := runs(c); code == 0 || !strings.Contains(errs, set+" is set, and "+missing+" is not: expected both") {
			t.Errorf("%s: code %d, %s: expected that %s is missing", set, code, errs, missing)
		}
		c = command(t, "--standalone", "-n", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE")
		c.Env = append(c.Env, set)
		if code, out, errs := runs(c); code != 0 || strings.Join(sortedLines(out), " ") != "0/2 1/2" {
			t.Errorf("standalone: code %d, %q, %s", code, out, errs)
		}
	}
}

// The launcher passes its warnings on, so that the ranks do not repeat them.
func TestWarningsArePassedOn(t *testing.T) {
	c := command(t, "-n", "2", "sh", "-c", "echo $MSCCLPP_WARNED")
	c.Env = append(c.Env, "MSCCLPP_TYPO=1", "MSCCLPP_SLIP=1")
	code, out, errs := runs(c)
	if code != 0 || out != strings.Repeat("MSCCLPP_SLIP,MSCCLPP_TYPO\n", 2) || strings.Count(errs, "is not known") != 2 {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
}

func TestRendezvousOfIPv6(t *testing.T) {
	for endpoint, want := range map[string]string{"fe80::1": "fe80::1 29400\n", "[fe80::1]": "fe80::1 29400\n", "[fe80::1]:5": "fe80::1 5\n"} {
		code, out, errs := runs(command(t, "--nnodes", "2", "--node-rank", "1", "--rendezvous", endpoint, "-n", "1", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT"))
		if code != 0 || out != want {
			t.Errorf("%s: code %d, %q, %s: expected %q", endpoint, code, out, errs, want)
		}
	}
}

// On a host with IPv6 alone, jobs run as elsewhere: those that the launcher brings together, those that meet at an
// address, and those of other launchers, for which rank 0 is at localhost.
func TestHostWithIPv6Alone(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("needs IPv6: %v", err)
	} else {
		l.Close()
	}
	over := []string{"--set", "plugins.embed=tcp", "--set", "transports=tcp", "bench", "allreduce", "-b", "1K", "--device", "host"}
	torch := func(at string) []string {
		return []string{"-n", "2", "sh", "-c", `unset MSCCLPP_UNIQUE_ID MSCCLPP_LISTEN_FD MSCCLPP_LAUNCH_ID; MASTER_ADDR=` + at + ` MASTER_PORT=29400 exec "$0" "$@"`, os.Args[0]}
	}
	for name, first := range map[string][]string{
		"one host": {"-n", "2"}, "hosts": {"-n", "2", "--nnodes", "1", "--rendezvous", "[::1]:29400"},
		"another launcher": torch("localhost"), "another launcher, in brackets": torch("[::1]"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := command(t, append(first, over...)...)
			c.Env = append(c.Env, withIPv6Alone+"=1")
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			code, out, errs := runs(c)
			if code == -1 && strings.Contains(errs, "operation not permitted") {
				t.Skip("needs permission to make a network namespace")
			}
			if code != 0 || !strings.Contains(out, "Avg bus bandwidth") {
				t.Errorf("code %d, %s, %s", code, out, errs)
			}
		})
	}
}

func TestSeveralHostsByHand(t *testing.T) {
	code, out, errs := runs(command(t, "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "h0:5000", "-n", "1", "sh", "-c", "echo $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT"))
	if code != 0 || out != "1/2 h0:5000\n" {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
}

func TestDryRunStartsNothing(t *testing.T) {
	code, out, errs := runs(command(t, "-n", "2", "--dry-run", "--", "sh", "-c", "echo it's"))
	lines := sortedLines(out)
	if code != 0 || len(lines) != 2 || !strings.HasPrefix(lines[1], "RANK=1 WORLD_SIZE=2 ") || !strings.HasSuffix(lines[1], `sh -c 'echo it'\''s'`) || !strings.Contains(out, "MSCCLPP_UNIQUE_ID=(hidden)") {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

func TestMistakes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "expected a program or a verb"},
		{[]string{"-n", "x", "true"}, 2, `invalid argument "x" for "-n, --np" flag: expected a whole number`},
		{[]string{"bench", "--iters", "many"}, 2, `bench: invalid argument "many" for "--iters" flag: expected a whole number`},
		{[]string{"topo", "-n", "many"}, 2, `topo: invalid argument "many" for "-n, --np" flag: expected a whole number`},
		{[]string{"simulate", "--launch", "soon"}, 2, `"--launch" flag: expected a number`},
		{[]string{"tune", "--budget", "long"}, 2, `"--budget" flag: expected a duration, such as 90s`},
		{[]string{"--set", "plugins.embed=shm", "tune", "--out", "/nonexistent/table", "allreduce"}, 1, "mscclpp-run: tune: --out /nonexistent/table: stat /nonexistent: no such file"},
		{[]string{"--hostfile", "", "true"}, 2, "--hostfile is empty: expected a value, or no flag"},
		{[]string{"--host=", "true"}, 2, "--host is empty"},
		{[]string{"--emit", "", "true"}, 2, "--emit is empty"},
		{[]string{"bench", "--config", ""}, 2, "--config is empty"},
		{[]string{""}, 2, "its name is empty"},
		{[]string{"benhc", "allreduce"}, 127, "program benhc: not found in PATH: file does not exist; nor is it a verb (did you mean \"bench\"?): bench, check, "},
		{[]string{"--chdir", "/nonexistent", "true"}, 127, "--chdir /nonexistent: stat /nonexistent: no such file"},
		{[]string{"--chdir", "/etc/passwd", "true"}, 1, "--chdir /etc/passwd: expected a folder"},
		{[]string{"-n", "-1", "true"}, 2, "-n -1: expected at least 1"},
		{[]string{"-n", "0", "true"}, 2, "-n 0: expected at least 1"},
		{[]string{"-n", "1025", "true"}, 2, "-n 1025: expected at most 1024 ranks on a host"},
		{[]string{"--nproc-per-node", "1025", "true"}, 2, "1 to 1024 ranks"},
		{[]string{"--host", "a,b", "-n", "2050", "true"}, 2, "1025 ranks on host a: expected at most 1024"},
		{[]string{"--nnodes", "65", "--node-rank", "0", "--master-addr", "h", "-n", "1024", "true"}, 2, "65 hosts with 1024 ranks each: expected a job of at most 65536 ranks"},
		{[]string{"--nnodes", "0", "true"}, 2, "--nnodes 0: expected at least 1"},
		{[]string{"--node-rank", "-1", "true"}, 2, "--node-rank -1: expected 0 or more"},
		{[]string{"--master-port", "99999", "true"}, 2, "--master-port 99999: expected 1 to 65535"},
		{[]string{"--master-port", "-5", "bench"}, 2, "--master-port -5: expected 1 to 65535"},
		{[]string{"bench", "--master-port", "99999"}, 2, "--master-port 99999: expected 1 to 65535"},
		{[]string{"--nosuch", "true"}, 2, "unknown flag: --nosuch"},
		{[]string{"-n", "2", "--nproc-per-node", "3", "true"}, 2, "expected one of them"},
		{[]string{"--nproc-per-node", "many", "true"}, 2, "expected a number, gpu, cpu or auto"},
		{[]string{"--nnodes", "2", "true"}, 2, "expected --node-rank"},
		{[]string{"--nnodes", "2", "--node-rank", "2", "true"}, 2, "host 2 of 2"},
		{[]string{"--nnodes", "2", "--node-rank", "0", "true"}, 2, "expected --master-addr"},
		{[]string{"--rdzv-endpoint", "h:x", "true"}, 2, `--rendezvous h:x: port "x": expected 1 to 65535`},
		{[]string{"--rdzv-endpoint", "a:b:c", "true"}, 2, "--rendezvous a:b:c: expected HOST or HOST:PORT, an address of IPv6 in brackets"},
		{[]string{"--rdzv-endpoint", ":5", "true"}, 2, "--rendezvous :5: expected HOST or HOST:PORT"},
		{[]string{"--host", "a,b", "topo"}, 2, "topo: it looks at this host and starts no ranks: expected no list of hosts"},
		{[]string{"--emit", "sbatch", "doctor"}, 2, "doctor: it starts no ranks: expected no --emit"},
		{[]string{"--image", "i", "true"}, 2, "--image describes a manifest: expected --emit as well"},
		{[]string{"--host", "a", "--ssh", "/tmp", "true"}, 1, "ssh: fork/exec /tmp: permission denied: expected a command that runs another one on the host, see --ssh"},
		{[]string{"--hostfile", "h", "true"}, 1, "--hostfile: open h: no such file"},
		{[]string{"--hostfile", "/dev/zero", "true"}, 1, "--hostfile: /dev/zero: expected a regular file or a pipe"},
		{[]string{"--set", "bootstrap.timeout=50ms", "--hostfile", pipe, "true"}, 1, "expected somebody to write into the pipe, and to close it, within 50ms"},
		{[]string{"--set", "comm.scrach=1", "true"}, 1, `did you mean "comm.scratch"?`},
		{[]string{"--set", "novalue", "true"}, 2, "expected KEY=VALUE"},
		{[]string{"--config", "/nonexistent.yaml", "true"}, 1, "no such file"},
		{[]string{"--bind-to", "sofa", "true"}, 1, "expected none, core, numa, socket or auto"},
		{[]string{"-x", "=1", "true"}, 2, "expected VAR or VAR=VALUE"},
		{[]string{"/nonexistent/program"}, 127, "program /nonexistent/program"},
		{[]string{"/etc/passwd"}, 126, "is not executable"},
		{[]string{"config", "extra"}, 2, `config: unexpected argument "extra": expected flags alone`},
		{[]string{"conform", "bin/plugins/mscclpp-transport-shm"}, 2, "conform: unexpected argument"},
		{[]string{"--device", "cuda", "true"}, 2, "unknown flag: --device: expected --set device=VALUE"},
		{[]string{"config", "--nosuch"}, 2, "config: unknown flag"},
		{[]string{"config", "--format", "xml"}, 2, "expected table or json"},
	} {
		code, _, errs := runs(command(t, c.args...))
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%v: code %d, %q; expected %d, %q", c.args, code, errs, c.code, c.want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, _ := runs(command(t, "--help"))
	for _, v := range verbs {
		if !strings.Contains(out, "\n  "+v.name+" ") {
			t.Errorf("help lacks the verb %s", v.name)
		}
	}
	if code != 0 || !strings.Contains(out, "--bind-to") || strings.Contains(out, "oversubscribe") {
		t.Errorf("code %d, help:\n%s", code, out)
	}
	if code, out, _ := runs(command(t, "--version")); code != 0 || !strings.HasPrefix(out, "mscclpp-run ") {
		t.Errorf("code %d, %q", code, out)
	}
	if code, out, _ := runs(command(t, "-n", "4", "config", "--help")); code != 0 || !strings.Contains(out, "--docs") {
		t.Errorf("code %d, %q", code, out)
	}
}

func TestConfigVerb(t *testing.T) {
	code, out, errs := runs(command(t, "--set", "comm.scratch=1MiB", "config", "--format", "json"))
	if code != 0 || !strings.Contains(out, `{"key":"comm.scratch","value":"1MiB","layer":"flag","origin":"--set"}`) {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
	c := command(t, "config")
	c.Env = append(c.Env, "MSCCLPP_SRCATCH=1")
	if code, out, errs := runs(c); code != 0 || !strings.Contains(errs, "warning: environment variable MSCCLPP_SRCATCH") || !strings.Contains(out, "comm.scratch") {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

func TestReportBindings(t *testing.T) {
	code, _, errs := runs(command(t, "-n", "2", "--bind-to", "none", "--report-bindings", "true"))
	if code != 0 || strings.Count(errs, "not bound") != 2 {
		t.Errorf("code %d, %s", code, errs)
	}
	code, _, errs = runs(command(t, "-n", "1", "--bind-to", "core", "--report-bindings", "true"))
	if code != 0 || !strings.Contains(errs, "rank 0: processors ") {
		t.Errorf("code %d, %s", code, errs)
	}
}
