package enginetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// over is a job over "ssh" on the hosts of a list.
func over(t *testing.T, hosts string, args ...string) []string {
	t.Helper()
	return append([]string{runner, "--ssh", fakeSSH(t) + " -T", "--host", hosts}, args...)
}

func TestHostsFormOneJob(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# two hosts\na slots=3\n\nchatty:2 # prints a line at login\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two, three := "[0 1 2]", "[3 4]"
	want := []string{
		"rank 0 of 5 with " + two + " on this host, local 0 of 3, host 0",
		"rank 1 of 5 with " + two + " on this host, local 1 of 3, host 0",
		"rank 2 of 5 with " + two + " on this host, local 2 of 3, host 0",
		"rank 3 of 5 with " + three + " on this host, local 0 of 2, host 1",
		"rank 4 of 5 with " + three + " on this host, local 1 of 2, host 1",
	}
	code, out, errs := runs(t, []string{modeVar + "=meet"}, runner, "--ssh", fakeSSH(t), "--hostfile", file, "-x", modeVar, self(t))
	if code != 0 || !slices.Equal(places(out), want) || errs != "" {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

// The command line and what is printed do not have the secret, and neither do processes
// that are not ranks.
func TestHostsHideTheSecret(t *testing.T) {
	mark := "ENGINE_TEST_MARK=" + t.TempDir() // of all processes of this job
	s := program(t, 2*patience, []string{mark}, over(t, "a,b", "-n", "2", "sh", "-c", "echo up; exec sleep 1000")...)
	f := s.follow(t)
	f.await(t, "up", 2)
	// Between its line and its sleep a rank is still a shell: look until both sleep.
	ranks := 0
	for end := time.Now().Add(patience); !t.Failed() && ranks < 2 && time.Now().Before(end); {
		ranks = ranksWithID(t, mark)
	}
	if ranks < 2 {
		t.Errorf("%d ranks have an id, expected 2", ranks)
	}
	if strings.Contains(f.String(), "mscclpp1-") {
		t.Errorf("the id was printed: %s", f)
	}
	_ = s.Process.Signal(syscall.SIGTERM)
	_ = s.Wait()
	if code := s.ProcessState.ExitCode(); code != 128+15 {
		t.Errorf("code %d after SIGTERM, expected 143: %s", code, f)
	}
}

// ranksWithID counts the sleeping ranks that have an id in their environment. No
// other process with the mark may have it, and no command line.
func ranksWithID(t *testing.T, mark string) (ranks int) {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		if again, _ := os.ReadFile(dir + "/cmdline"); len(line) == 0 || !bytes.Equal(line, again) {
			continue // it became another program while it was read, or is about to
		}
		shell := strings.HasPrefix(string(line), "sh\x00-c\x00") // a rank that is about to sleep
		switch {
		case !strings.Contains(string(env), mark+"\x00"):
		case strings.Contains(string(line), "mscclpp1-"):
			t.Errorf("%s: the command line has an id: %q", dir, line)
		case !strings.Contains(string(env), "mscclpp1-"):
		case strings.Contains(string(line), "sleep\x001000"):
			ranks++
		case strings.Contains(string(env), "MSCCLPP_HOSTID=a\x00") && !shell:
			t.Errorf("%s: %q has the id in its environment", dir, line)
		}
	}
	return ranks
}

func TestHostsPassInputAndVariables(t *testing.T) {
	s := program(t, 2*patience, []string{"COLOR=blue", "MSCCLPP_LOG__LEVEL=info", "OTHER=x"}, over(t, "a,b:2", "-x", "COLOR", "-x", "SIZE=5", "--tag-output",
		"sh", "-c", `test $RANK != 0 || { read line; echo "read $line"; }; echo $COLOR $SIZE $MSCCLPP_LOG__LEVEL $MSCCLPP_HOSTID $MASTER_ADDR; pwd`)...)
	s.Env = slices.DeleteFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "OTHER=") })
	s.Stdin = strings.NewReader(strings.Repeat("a", 50<<10) + "\nnever read\n")
	if err := s.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, s.out.String(), s.errs.String())
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	out := s.out.String()
	for _, want := range []string{"[0] read " + strings.Repeat("a", 50<<10) + "\n", "[0] blue 5 info a ", "[1] blue 5 info b ", "[2] blue 5 info b ", "[2] " + dir + "\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %.60q:\n%.500s", want, out[max(0, len(out)-500):])
		}
	}
}

func TestHostsRunVerbs(t *testing.T) {
	code, out, errs := runs(t, nil, over(t, "a:2", "bench", "--help")...)
	if code != 0 || !strings.Contains(out, "mscclpp-run bench") {
		t.Errorf("help: code %d, %s, %s", code, out, errs)
	}
	code, out, errs = runs(t, []string{builtPlugins(t)}, over(t, "a:2", "bench", "allreduce", "--bytes", "1K", "--iters", "2")...)
	if strings.Contains(errs, "make kernels") || strings.Contains(errs, "make build") {
		unbuilt(t, "kernels of this tree", "make kernels")
	}
	if code != 0 || !strings.Contains(out, "allreduce") {
		t.Errorf("code %d, %s, %s", code, out, errs)
	}
}

// The first rank that fails decides, wherever it is, and the others are ended.
func TestFailedRankEndsAllHosts(t *testing.T) {
	watch := promise.Begin()
	code, _, errs := runs(t, nil, over(t, "a:2,b:2,c:2", "--linger", "0s", "sh", "-c", "test $RANK != 3 || exit 7; exec sleep 1000")...)
	if code != 7 || !strings.Contains(errs, "mscclpp-run: host b: rank 3 (pid ") || strings.Count(errs, "exited") != 1 {
		t.Errorf("code %d, %s", code, errs)
	}
	if err := watch.Kept(20 * time.Second); err != nil {
		t.Error(err)
	}
}

// A death leaves nothing behind, and the survivors say why.
func TestDeathAmongHosts(t *testing.T) {
	for name, c := range map[string]struct {
		victim func(s *started, all []member) int
		want   string // in what the launcher prints, unless it died
	}{
		"a rank":       {func(_ *started, all []member) int { return all[1].pid }, "was killed by signal 9 (SIGKILL)"},
		"an agent":     {func(_ *started, all []member) int { return all[1].agent }, "the connection to mscclpp-run there ended"},
		"the launcher": {func(s *started, _ []member) int { return s.Process.Pid }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := program(t, 2*patience, []string{modeVar + "=wait"}, over(t, "a:2,b:2", "-x", modeVar, self(t))...)
			f := s.follow(t)
			all := f.members(t, 4)
			slices.SortFunc(all, func(a, b member) int { return a.rank - b.rank })
			_ = syscall.Kill(c.victim(s, all), syscall.SIGKILL)
			if err := s.Wait(); err == nil {
				t.Error("the launcher ended in order")
			}
			if !strings.Contains(f.String(), c.want) {
				t.Errorf("lacks %q:\n%s", c.want, f)
			}
			var pids []int
			for _, m := range all {
				pids = append(pids, m.pid, m.agent)
			}
			gone(t, pids)
		})
	}
}

func TestHostsThatDoNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		hosts string
		flags []string
		code  int
		want  []string
	}{
		"unreachable": {"a,down1,down2", nil, 1, []string{
			"host down1: unavailable: cannot be reached", "Connection refused", "host down2: ", "works without a question"}},
		"half are silent": {"a,b,silent1,silent2", []string{"--set", "bootstrap.timeout=2s"}, 1, []string{
			"2 of 4 hosts have not answered: silent1, silent2", "take them off the list"}},
		"no mscclpp-run":      {"a,bare", nil, 1, []string{"host bare: unavailable: mscclpp-run could not be started there", "--agent"}},
		"no such program":     {"a,b", []string{"--chdir", "/"}, 127, []string{"host a: ", "program ./nosuch"}},
		"no such folder":      {"a,b", []string{"--chdir", "/nosuch"}, 127, []string{"host a: ", "folder /nosuch", "--chdir"}},
		"no ssh":              {"a,b", []string{"--ssh", "/nosuch/ssh"}, 1, []string{"host a: unavailable: ssh: ", "/nosuch/ssh"}},
		"an option as host":   {"-oProxyCommand=x", nil, 2, []string{"expected a name or an address"}},
		"too many":            {"a:1,b:2", []string{"-n", "4"}, 2, []string{"2 hosts have 3 slots"}},
		"hosts and nnodes":    {"a,b", []string{"--nnodes", "2"}, 2, []string{"expected none of them beside a list of hosts"}},
		"no GPU on the hosts": {"a,b", []string{"--nproc-per-node", "gpu"}, 1, []string{"host a: one rank for each gpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat("/dev/nvidia0"); err == nil && strings.Contains(name, "GPU") {
				t.Skip("needs a machine without GPUs")
			}
			code, _, errs := runs(t, nil, over(t, c.hosts, append(c.flags, "./nosuch")...)...)
			for _, want := range c.want {
				if code != c.code || !strings.Contains(errs, want) {
					t.Errorf("code %d, lacks %q: %s", code, want, errs)
				}
			}
		})
	}
}

// Where every host runs mscclpp-run by hand, the ranks notice what does not fit.
func TestHostsThatDisagree(t *testing.T) {
	good := secret(t, "a secret of a job of two hosts")
	other := secret(t, "another secret, of somebody else")
	for name, c := range map[string]struct {
		first, second []string // flags of the two hosts
		secret        string   // of the second
		alone         bool     // the second host does not come
		want          string
		todo          string
	}{
		// Of three hosts, so that the job is not complete before the second one comes.
		"duplicate rank":    {[]string{"--nnodes=3", "--node-rank=1"}, []string{"--nnodes=3", "--node-rank=1"}, good, false, "rank 1 checked in twice", "two processes were started with the same rank"},
		"another size":      {nil, []string{"--nnodes=3", "--node-rank=1"}, good, false, "rank 1 expects a job of 3 ranks, rank 0 expects 2", "expected the same numbers of hosts and ranks everywhere"},
		"wrong secret":      {nil, []string{"--nnodes=2", "--node-rank=1"}, other, false, "wrong secret", "expected the same MSCCLPP_SECRET_FILE for all ranks"},
		"a host is missing": {nil, nil, "", true, "rank 1 is missing", "see whether its process was started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			port, timeout := fmt.Sprint(freePort(t)), "3m"
			if strings.Contains(c.want, "missing") || strings.Contains(c.want, "secret") { // rank 0 waits in vain
				timeout = "10s"
			}
			start := func(host string, flags []string, file string) (*started, *feed) {
				args := slices.Concat([]string{runner, "--master-addr=127.0.0.1", "--master-port=" + port, "-n1", "--tag-output"}, flags, []string{self(t)})
				s := program(t, 2*patience, []string{modeVar + "=meet", "ENGINE_TEST_TIMEOUT=" + timeout, "MSCCLPP_HOSTID=" + host, "MSCCLPP_SECRET_FILE=" + file}, args...)
				return s, s.follow(t)
			}
			nodes := "--nnodes=2"
			if c.first != nil {
				nodes = c.first[0]
			}
			root, said := start("a", []string{nodes, "--node-rank=0"}, good)
			all, words := []*started{root}, []*feed{said}
			for _, more := range []struct {
				flags []string
				file  string
			}{{c.first, good}, {c.second, c.secret}} {
				if more.flags == nil || c.alone {
					continue
				}
				s, f := start("b", more.flags, more.file)
				all, words = append(all, s), append(words, f)
			}
			text := ""
			for i, s := range all {
				if err := s.Wait(); err == nil {
					t.Error("a host of a job that cannot be ended in order")
				}
				text += words[i].String()
			}
			if !strings.Contains(text, c.want) || !strings.Contains(text, c.todo) {
				t.Errorf("lacks %q or %q:\n%s", c.want, c.todo, text)
			}
		})
	}
}

// A rank whose master nobody reaches says how long it waited and where.
func TestUnreachableMaster(t *testing.T) {
	code, out, _ := runs(t, []string{modeVar + "=meet", "ENGINE_TEST_TIMEOUT=1s", "MSCCLPP_SECRET_FILE=" + secret(t, "a secret of a job of two hosts")},
		runner, "--nnodes=2", "--node-rank=1", "--master-addr=127.0.0.1", fmt.Sprint("--master-port=", freePort(t)), self(t))
	if code != 3 || !strings.Contains(out, "rank 0 does not answer: this rank has waited ") || !strings.Contains(out, "it has not started there") {
		t.Errorf("code %d, %s", code, out)
	}
}
