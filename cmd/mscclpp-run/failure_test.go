package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/promise"
)

// The bounds that users are promised. On a loaded machine the kernel alone can take
// most of the first.
const (
	deathBound = 2 * time.Second
	setUpBound = 3 * time.Minute
)

// patientStart has plugins started as late as a busy machine gets to it.
const patientStart = "MSCCLPP_PLUGINS__START_TIMEOUT=3m"

// victim is a running job of four ranks, all busy with collectives.
type victim struct {
	places
	launcher *exec.Cmd
	stderr   bytes.Buffer
	ended    chan struct{}
	ranks    []int // pids, ascending: not in the order of ranks
	plugins  []int
}

// startVictim starts a job that would run for minutes, and waits until all ranks
// have spent processor time with all plugins in place. Survivors have the time that they need to say why they end.
func startVictim(t *testing.T, i installed, work ...string) *victim {
	t.Helper()
	if work == nil {
		work = []string{"bench", "allreduce"}
	}
	v := &victim{places: newPlaces(t), ended: make(chan struct{})}
	v.launcher = exec.Command(i.launcher, slices.Concat([]string{"-n", "4", "--log-level", "none", "--linger", "1m"}, work, []string{"--bytes", "1M", "--iters", "10000000"})...)
	v.launcher.Env = v.environ(i)
	v.launcher.Stderr = &v.stderr
	v.launcher.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := v.launcher.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { v.launcher.Wait(); close(v.ended) }()
	t.Cleanup(func() {
		for _, pid := range append(v.family(), v.launcher.Process.Pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		<-v.ended
	})
	eventually(t, setUpBound, "four busy ranks with a plugin each", func() bool {
		v.ranks, v.plugins = nil, nil
		for _, pid := range v.family() {
			switch args := commandLine(pid); {
			case strings.Contains(args, "mscclpp-transport-shm"):
				v.plugins = append(v.plugins, pid)
			case strings.Contains(args, strings.Join(work[max(0, len(work)-3):], " ")) && processorTime(pid) > 20:
				v.ranks = append(v.ranks, pid)
			}
		}
		return len(v.ranks) == 4 && len(v.plugins) == 4
	})
	return v
}

// planWork compiles a plan of the library and returns the arguments that have ranks execute it.
func planWork(t *testing.T, i installed, name string, more ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".json")
	if out, errs, code := i.run(t, append([]string{"plan", "compile", name, "--ranks", "4", "--output", file}, more...)...); code != 0 {
		t.Fatalf("compile: %d, %s%s", code, out, errs)
	}
	return []string{"plan", "bench", file}
}

// onHosts stands before a verb of ranks that are two by two on hosts of their own, as far as they know, with tcp between these.
func onHosts(launcher string) []string {
	return []string{"--transports", "shm,tcp", "sh", "-c", `export MSCCLPP_BOOTSTRAP__HOST_ID=host-$((RANK/2)); exec "$0" "$@"`, launcher}
}

// family lists the descendants of the launcher.
func (v *victim) family() []int {
	parents := make(map[int]int)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if f := statFields(pid); f != nil {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	var all []int
	for pid := range parents {
		for p := pid; p > 1; p = parents[p] {
			if p == v.launcher.Process.Pid && pid != p {
				all = append(all, pid)
				break
			}
		}
	}
	slices.Sort(all)
	return all
}

// statFields returns /proc/PID/stat from the state on, nil for a process that is
// gone or a zombie.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 || f[0] == "Z" || f[0] == "X" {
		return nil
	}
	return f
}

// processorTime is in ticks of a hundredth of a second.
func processorTime(pid int) int {
	f := statFields(pid)
	if f == nil {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.ReplaceAll(string(b), "\x00", " ")
}

func eventually(t *testing.T, bound time.Duration, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); !f(); <-tick.C {
		if time.Since(start) > bound {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// places are the folders in which programs leave what outlives them by mistake.
// The job under test has them for itself, but for shared memory.
type places struct{ temporary, runtime string }

func newPlaces(t *testing.T) places { return places{t.TempDir(), t.TempDir()} }

func (p places) environ(i installed) []string {
	return append(os.Environ(), "MSCCLPP_TRANSPORT__SHM__IMAGES="+i.images, "TMPDIR="+p.temporary, "XDG_RUNTIME_DIR="+p.runtime, patientStart)
}

func (p places) traces() []string {
	var all []string
	for _, pattern := range []string{p.temporary + "/*", p.runtime + "/*", "/dev/shm/*mscclpp*"} {
		found, _ := filepath.Glob(pattern)
		all = append(all, found...)
	}
	return all
}

// nothingLeft checks that all processes of a job are gone within the bound, and
// that no file, socket or shared memory object remains.
func (p places) nothingLeft(t *testing.T, pids []int) {
	t.Helper()
	watch := promise.Begin()
	eventually(t, setUpBound, "the end of all processes", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return statFields(pid) != nil })
	})
	if err := watch.Kept(deathBound); err != nil {
		t.Errorf("processes ended %v", err)
	}
	if left := p.traces(); len(left) > 0 {
		t.Errorf("the job left %q", left)
	}
}

// Survivors of a death say who died, the job ends with the code of the first
// failure, and the machine is as it was.
func TestDeath(t *testing.T) {
	i := install(t)
	network(t)
	t.Run("rank in start-up", func(t *testing.T) { deathInStartUp(t, i) })
	t.Run("plugin in start-up", func(t *testing.T) { pluginDeathInStartUp(t, i) })
	t.Run("rank in shutdown", func(t *testing.T) { deathInShutdown(t, i, "bench allreduce", 128+9) })
	t.Run("plugin in shutdown", func(t *testing.T) { deathInShutdown(t, i, "mscclpp-transport-shm", 1) })
	blames := regexp.MustCompile(`rank (\d)`)
	for _, test := range []struct {
		name   string
		pick   func(v *victim) int
		code   int
		wanted []string // each in the report of every survivor
		work   []string // of the ranks; nil: a collective
	}{
		{"rank", func(v *victim) int { return v.ranks[2] }, 128 + 9, []string{"peer failed", "died"}, nil},
		{"plugin", func(v *victim) int { return v.plugins[1] }, 1, []string{"plugin gone", "mscclpp-transport-shm"}, nil},
		{"rank in a plan", func(v *victim) int { return v.ranks[1] }, 128 + 9, []string{"peer failed", "died"}, planWork(t, i, "allreduce-2pa-packets")},
		{"rank in a plan with ports", func(v *victim) int { return v.ranks[3] }, 128 + 9, []string{"peer failed", "died"}, planWork(t, i, "allreduce-2pa-ports")},
		{"rank in a plan over hosts", func(v *victim) int { return v.ranks[0] }, 128 + 9, []string{"peer failed", "died"},
			slices.Concat(onHosts(i.launcher), planWork(t, i, "allreduce-hierarchical-chunks", "--per-host", "2"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := startVictim(t, i, test.work...)
			pids := append(v.family(), v.launcher.Process.Pid)
			watch := promise.Begin()
			syscall.Kill(test.pick(v), syscall.SIGKILL)
			select {
			case <-v.ended:
			case <-time.After(2*deathBound + setUpBound):
				t.Fatal("the job did not end")
			}
			if err := watch.Kept(deathBound); err != nil {
				t.Errorf("the job ended %v", err)
			}
			if code := v.launcher.ProcessState.ExitCode(); code != test.code {
				t.Errorf("exit code %d, expected %d", code, test.code)
			}
			culprits := make(map[string]bool)
			reports := 0
			for _, line := range strings.Split(v.stderr.String(), "\n") {
				if !strings.Contains(line, "bench allreduce of 1M") {
					continue
				}
				reports++
				for _, word := range test.wanted {
					if !strings.Contains(line, word) {
						t.Errorf("%q does not say %q", line, word)
					}
				}
				if m := blames.FindStringSubmatch(line); m != nil {
					culprits[m[1]] = true
				}
			}
			if reports < 3 || len(culprits) != 1 {
				t.Errorf("%d survivors blame %d ranks, expected at least 3 that blame one:\n%s", reports, len(culprits), v.stderr.String())
			}
			v.nothingLeft(t, pids)
		})
	}
	t.Run("plugin stopped", func(t *testing.T) { stoppedPlugin(t, i) })
	t.Run("launcher", func(t *testing.T) {
		v := startVictim(t, i)
		pids := v.family()
		v.launcher.Process.Kill()
		<-v.ended
		v.nothingLeft(t, pids)
	})
	t.Run("everything", func(t *testing.T) {
		v := startVictim(t, i)
		pids := append(v.family(), v.launcher.Process.Pid)
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		<-v.ended
		v.nothingLeft(t, pids)
	})
}

// A rank whose plugin does not answer any more says why it ends before it is killed.
func stoppedPlugin(t *testing.T, i installed) {
	v := startVictim(t, i)
	pids := append(v.family(), v.launcher.Process.Pid)
	syscall.Kill(v.plugins[1], syscall.SIGSTOP)
	v.launcher.Process.Signal(syscall.SIGTERM)
	select {
	case <-v.ended:
	case <-time.After(setUpBound):
		t.Fatal("the job did not end")
	}
	said := strings.Count(v.stderr.String(), "mscclpp-run: bench allreduce of 1M")
	if said != 4 || strings.Contains(v.stderr.String(), "was killed by") {
		t.Errorf("%d of 4 ranks said why they end:\n%s", said, v.stderr.String())
	}
	v.nothingLeft(t, pids)
}

// A rank that dies before it has joined is noticed by those that wait for it.
func deathInStartUp(t *testing.T, i installed) {
	p := newPlaces(t)
	script := `if [ "$RANK" = 2 ]; then kill -9 $$; fi; exec "$0" --log-level none bench allreduce --bytes 1K`
	c := exec.Command(i.launcher, "-n", "4", "sh", "-c", script, i.launcher)
	c.Env = p.environ(i)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	watch := promise.Begin()
	err := c.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 128+9 {
		t.Errorf("%v, expected exit code %d\n%s", err, 128+9, stderr.String())
	}
	if err := watch.Kept(2 * deathBound); err != nil {
		t.Errorf("the job ended %v\n%s", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "rank 2") {
		t.Errorf("rank 2 is not named:\n%s", stderr.String())
	}
	p.nothingLeft(t, nil)
}

// startCase starts a short job of four ranks, to be killed at some time of its life.
func startCase(t *testing.T, i installed, calls int) *victim {
	t.Helper()
	v := &victim{places: newPlaces(t), ended: make(chan struct{})}
	v.launcher = exec.Command(i.launcher, "-n", "4", "--log-level", "none", "bench", "allreduce", "--bytes", "64K", "--iters", strconv.Itoa(calls))
	v.launcher.Env = v.environ(i)
	v.launcher.Stderr = &v.stderr
	if err := v.launcher.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { v.launcher.Wait(); close(v.ended) }()
	return v
}

// endsSoon waits for the end of a job in which something was just killed.
func (v *victim) endsSoon(t *testing.T) {
	t.Helper()
	watch := promise.Begin()
	select {
	case <-v.ended:
	case <-time.After(setUpBound):
		v.launcher.Process.Kill()
		t.Fatalf("the job did not end\n%s", v.stderr.String())
	}
	if err := watch.Kept(deathBound); err != nil {
		t.Errorf("the job ended %v", err)
	}
}

// The first plugin dies as soon as it is there, while ranks still look for each other. The job would run for minutes.
func pluginDeathInStartUp(t *testing.T, i installed) {
	v := startCase(t, i, 10_000_000)
	pids := map[int]bool{}
	eventually(t, setUpBound, "the first plugin", func() bool {
		for _, pid := range v.family() {
			pids[pid] = true
			if strings.Contains(commandLine(pid), "mscclpp-transport-shm") {
				syscall.Kill(pid, syscall.SIGKILL)
				return true
			}
		}
		return false
	})
	v.endsSoon(t)
	if code := v.launcher.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, expected 1", code)
	}
	for _, want := range []string{"plugin gone", "mscclpp-transport-shm", "killed", "mscclpp-run: rank "} {
		if !strings.Contains(v.stderr.String(), want) {
			t.Errorf("nobody says %q:\n%s", want, v.stderr.String())
		}
	}
	v.nothingLeft(t, slices.Collect(maps.Keys(pids)))
}

// A rank that dies while the job takes itself apart can be noticed or not, but neither holds up the
// others nor leaves anything. The victim is the process that has the words in its command. A job that was over before a look
// saw all of its plugins was too short for this machine, and a longer one follows.
func deathInShutdown(t *testing.T, i installed, words string, code int) {
	calls := 200
	v := startCase(t, i, calls)
	most, pids := 0, map[int]bool{}
	eventually(t, setUpBound, "the first plugin to end", func() bool {
		select {
		case <-v.ended:
			if most < 4 {
				calls *= 8
				v, most = startCase(t, i, calls), 0
			}
		default:
		}
		plugins, victim := 0, 0
		for _, pid := range v.family() {
			pids[pid] = true
			line := commandLine(pid)
			if strings.Contains(line, "mscclpp-transport-shm") {
				plugins++
			}
			if strings.Contains(line, words) {
				victim = pid
			}
		}
		most = max(most, plugins)
		if most < 4 || plugins == 4 {
			return false
		}
		if victim != 0 {
			syscall.Kill(victim, syscall.SIGKILL)
		}
		return true
	})
	v.endsSoon(t)
	if got := v.launcher.ProcessState.ExitCode(); got != 0 && got != code {
		t.Errorf("exit code %d, expected 0 or %d\n%s", got, code, v.stderr.String())
	}
	v.nothingLeft(t, slices.Collect(maps.Keys(pids)))
}
