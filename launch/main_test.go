package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// The test binary plays all parts: the variable says which.
const roleVar = "LAUNCH_TEST_ROLE"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "--supervise" {
		supervise.Run(os.Stdin, os.Args[2])
		return
	}
	// Under the race detector every process sleeps a second before it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	role, ok := roles[os.Getenv(roleVar)]
	if ok {
		// A mistake in a test must not become an avalanche of processes.
		depth, _ := strconv.Atoi(os.Getenv("LAUNCH_TEST_DEPTH"))
		if depth++; depth > 3 {
			fmt.Fprintln(os.Stderr, "launch tests: too deep")
			os.Exit(99)
		}
		os.Setenv("LAUNCH_TEST_DEPTH", strconv.Itoa(depth))
		role()
		os.Exit(0)
	}
	if startedByTest() && !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzzworker") }) {
		// Running the tests here would start more of the same, without end.
		fmt.Fprintf(os.Stderr, "a child of the test without a role: arguments %q, role %q\n", os.Args[1:], os.Getenv(roleVar))
		os.Exit(97)
	}
	os.Setenv(testVar, "1")
	os.Exit(m.Run())
}

// testVar marks everything that the tests start.
const testVar = "MSCCLPP_LAUNCH_TEST"

// startedByTest reports whether this process descends from a run of the tests: it
// has the mark, or where the environment was cleared, the program of its parent.
func startedByTest() bool {
	own, err1 := os.Readlink("/proc/self/exe")
	parent, err2 := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
	return os.Getenv(testVar) != "" || err1 == nil && err2 == nil && own == parent
}

// roles are the programs that ranks run. Those that wait do so for ever: the test has to end them.
var roles = map[string]func(){
	"environment": func() {
		for _, name := range strings.Split(os.Getenv("SHOW"), ",") {
			fmt.Printf("%s=%s\n", name, os.Getenv(name))
		}
	},
	"exit": func() { // the rank in CULPRIT leaves with CODE, the others wait
		if os.Getenv("RANK") != os.Getenv("CULPRIT") {
			select {}
		}
		code, _ := strconv.Atoi(os.Getenv("CODE"))
		os.Exit(code)
	},
	"signal": func() {
		if os.Getenv("RANK") != os.Getenv("CULPRIT") {
			select {}
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	},
	"stopped": func() { // the rank in CULPRIT stops, and ends once it goes on
		if os.Getenv("RANK") == os.Getenv("CULPRIT") {
			supervise.StopSelf()
		}
	},
	"report": func() { // prints each signal; leaves on TERM unless STUBBORN
		got := make(chan os.Signal, 8)
		signal.Notify(got)
		fmt.Println("ready")
		for s := range got {
			if s == syscall.SIGURG {
				continue // the Go runtime's own
			}
			fmt.Println("got", s)
			if s != syscall.SIGUSR1 && s != syscall.SIGUSR2 && os.Getenv("STUBBORN") == "" {
				os.Exit(0)
			}
		}
	},
	"survivor": func() { // rank 0 dies; the others notice it in their own way and say so
		if os.Getenv("RANK") == "0" {
			os.Exit(3)
		}
		fmt.Println("rank 0 is gone")
		os.Exit(1)
	},
	"lines": func() {
		for i := range 200 {
			fmt.Printf("line %d of rank %s\n", i, os.Getenv("RANK"))
		}
		fmt.Fprint(os.Stderr, "no newline at the end")
	},
	"stdin": func() {
		var b bytes.Buffer
		n, err := b.ReadFrom(os.Stdin)
		fmt.Printf("rank %s read %d %q %v\n", os.Getenv("RANK"), n, b.String(), err)
	},
	// A rank that leaves processes behind in three ways, then ends.
	"litter": func() {
		for _, how := range []*syscall.SysProcAttr{{}, {Setpgid: true}, {Setsid: true}} {
			orphan(how, os.Environ())
		}
		bare := []string{roleVar + "=wait"} // without the mark
		orphan(&syscall.SysProcAttr{}, bare)
		orphan(&syscall.SysProcAttr{Setsid: true}, bare)
		fmt.Println("littered")
		if os.Getenv("STAY") != "" {
			select {}
		}
	},
	"wait":     func() { select {} },
	"affinity": func() { printAffinity() },
	"nested":   nestedLauncher,
}

// orphan starts a process that waits for ever and prints its number.
func orphan(how *syscall.SysProcAttr, env []string) {
	null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	p, err := os.StartProcess(self(), []string{"orphan"}, &os.ProcAttr{
		Env: overlay(env, []string{roleVar + "=wait"}), Files: []*os.File{null, null, null}, Sys: how,
	})
	if err != nil {
		fmt.Println("orphan:", err)
		os.Exit(1)
	}
	fmt.Println("pid", p.Pid)
}

// begin runs a job beside the test, which gets its result.
func begin(ctx context.Context, t *testing.T, j Job) <-chan Result {
	done := make(chan Result, 1)
	go func() {
		r, err := Run(ctx, j)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	return done
}

// nestedLauncher is a launcher in a process of its own, to be killed.
func nestedLauncher() {
	job := helper(1, os.Getenv("NESTED"))
	job.Env = overlay(job.Env, []string{"STAY=1"})
	job.Stdout, job.Stderr, job.Report = os.Stdout, os.Stderr, os.Stderr
	job.OwnOrphans = true
	if n, err := strconv.Atoi(os.Getenv("RANKS")); err == nil {
		job.Place.Local, job.Place.World = n, n
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGTSTP)
	job.Signals = signals
	fmt.Println("launcher", os.Getpid())
	r, err := Run(context.Background(), job)
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(r.Code)
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// patience is longer than anything in a test takes, on a machine that does much else as well.
const patience = 3 * time.Minute

// helper is a job of n ranks in one of the roles. Its output is discarded.
func helper(n int, role string, env ...string) Job {
	return Job{
		Path:       self(),
		Args:       []string{"helper"},
		Env:        overlay(os.Environ(), append([]string{roleVar + "=" + role}, env...)),
		Place:      Place{Local: n, World: n, Nodes: 1},
		Linger:     20 * time.Millisecond,
		Grace:      patience,
		Supervisor: []string{self(), "--supervise"},
	}
}

// text collects output, and lets a test wait for a piece of it.
type text struct {
	mu   sync.Mutex
	b    strings.Builder
	more chan struct{}
}

func newText() *text { return &text{more: make(chan struct{}, 1)} }

func (w *text) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(p)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (w *text) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// await waits until the text has n times what is wanted.
func (w *text) await(t *testing.T, want string, n int) {
	t.Helper()
	bound := time.After(patience)
	for strings.Count(w.String(), want) < n {
		select {
		case <-w.more:
		case <-bound:
			t.Fatalf("%q did not come %d times; so far:\n%s", want, n, w)
		}
	}
}

// run runs a job to its end and returns what it printed and what was reported.
func run(t *testing.T, j Job) (r Result, stdout, report string) {
	t.Helper()
	out, rep := newText(), newText()
	if j.Stdout == nil {
		j.Stdout = out
	}
	if j.Stderr == nil {
		j.Stderr = out
	}
	j.Report = rep
	r, err := Run(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String(), rep.String()
}
