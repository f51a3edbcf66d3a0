package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/supervise"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestSuccess(t *testing.T) {
	r, _, report := run(t, helper(4, "environment"))
	if r.Code != 0 || r.Rank != -1 || report != "" {
		t.Errorf("result %+v, report %q", r, report)
	}
}

func TestFirstFailureEndsTheJob(t *testing.T) {
	r, _, report := run(t, helper(3, "exit", "CULPRIT=1", "CODE=7"))
	if r.Code != 7 || r.Rank != 1 || r.Signal != "" {
		t.Errorf("result %+v, expected code 7 of rank 1", r)
	}
	if !strings.HasPrefix(report, "mscclpp-run: rank 1 (pid ") || !strings.HasSuffix(report, "exited with code 7; ending the other 2\n") || strings.Count(report, "\n") != 1 {
		t.Errorf("report %q, expected one line about rank 1", report)
	}
}

func TestDeathBySignal(t *testing.T) {
	r, _, report := run(t, helper(3, "signal", "CULPRIT=2"))
	if r.Code != 137 || r.Rank != 2 || r.Signal != "SIGKILL" {
		t.Errorf("result %+v, expected 137 of rank 2", r)
	}
	if !strings.Contains(report, "rank 2 ") || !strings.Contains(report, "was killed by signal 9 (SIGKILL)") {
		t.Errorf("report %q", report)
	}
}

// A rank that leaves too early with code 0 has not failed, but those that wait for it
// do: the line about the first of them names it.
func TestFailureNamesRanksThatLeftBefore(t *testing.T) {
	for _, c := range []struct {
		left []int
		want string
	}{
		{nil, "exited with code 1; ending the other 1\n"},
		{[]int{2}, "exited with code 1 after rank 6 had ended with code 0; ending the other 1\n"},
		{[]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "exited with code 1 after rank 5, 6, 7, 8, 9, 10, 11, 12 and 2 more had ended with code 0; ending the other 1\n"},
	} {
		report := newText()
		w := &watch{job: &Job{Report: report, Place: Place{First: 4}}, result: Result{Rank: -1}, alive: 1}
		for _, local := range c.left {
			if w.failed(exit{&process{local: local}, supervise.Change{Code: supervise.Exited}}) {
				t.Errorf("rank %d has failed with code 0", local)
			}
		}
		seventh := &process{Child: &supervise.Child{PID: 7}}
		if !w.failed(exit{seventh, supervise.Change{Code: supervise.Exited, Status: 1}}) || report.String() != "mscclpp-run: rank 4 (pid 7) "+c.want {
			t.Errorf("report %q, expected %q", report, c.want)
		}
	}
}

// Other code of the launcher's process may have waited for all children.
func TestRankWhoseStatusWasTaken(t *testing.T) {
	report := newText()
	w := &watch{job: &Job{Report: report}, result: Result{Rank: -1}}
	e := exit{&process{Child: &supervise.Child{PID: 7}}, supervise.Change{Code: supervise.Taken}}
	if !w.failed(e) || w.result.Code != 1 || w.result.Signal != "" || !strings.Contains(report.String(), "rank 0 (pid 7) has ended, and how is unknown: ") {
		t.Errorf("result %+v, report %q: expected a failure whose kind nobody knows", w.result, report)
	}
}

// A rank that is stopped has not ended, and nobody but the launcher can tell it from one
// that is slow.
func TestStoppedRankIsNamed(t *testing.T) {
	report := newText()
	j := helper(2, "stopped", "CULPRIT=1")
	j.Report, j.Stdout, j.Stderr = report, io.Discard, io.Discard
	done := begin(t.Context(), t, j)
	report.await(t, "\n", 1)
	var pid int
	if _, err := fmt.Sscanf(report.String(), "mscclpp-run: rank 1 (pid %d) is stopped by signal 19 (SIGSTOP)", &pid); err != nil {
		t.Fatalf("report %q, expected that rank 1 is stopped", report)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.Code != 0 || strings.Count(report.String(), "\n") != 1 {
		t.Errorf("result %+v, report %q: a rank that went on has not failed", r, report)
	}
}

// Ranks on a second host are numbered on.
func TestFailureNamesTheRankOfTheJob(t *testing.T) {
	j := helper(2, "exit", "CULPRIT=5", "CODE=1")
	j.Place = Place{Local: 2, First: 4, World: 6, Node: 2, Nodes: 3}
	r, _, report := run(t, j)
	if r.Rank != 5 || !strings.Contains(report, "rank 5 ") {
		t.Errorf("result %+v, report %q, expected rank 5", r, report)
	}
}

// Within the linger the others may end and say why; they are not blamed.
func TestSurvivorsMayReport(t *testing.T) {
	j := helper(3, "survivor")
	j.Linger = patience
	r, out, report := run(t, j)
	if r.Code != 3 && r.Code != 1 {
		t.Errorf("result %+v", r)
	}
	if strings.Count(out, "rank 0 is gone") != 2 {
		t.Errorf("output %q, expected the word of both survivors", out)
	}
	if strings.Count(report, "\n") != 1 {
		t.Errorf("report %q, expected one line", report)
	}
}

// Ranks are asked to end, and those that ignore it are killed after the grace. A process that SIGTERM ends has ended by it
// also where the kill comes before it gets a processor.
func TestStubbornRankIsKilledAfterGrace(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for script, signal := range map[string]syscall.Signal{`echo ready; exec sleep 1000`: syscall.SIGTERM, `trap "" TERM; echo ready; exec sleep 1000`: syscall.SIGKILL} {
		j := helper(2, "")
		j.Path, j.Args, j.Grace = sh, []string{"sh", "-c", script}, 50*time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		out := newText()
		j.Stdout, j.Stderr = out, out
		done := begin(ctx, t, j)
		out.await(t, "ready", 2)
		cancel()
		if r := <-done; r.Code != 128+int(signal) {
			t.Errorf("%s: result %+v, expected an end by %v", script, r, signal)
		}
	}
}

// Where several ranks have ended before the launcher gets to look, one that was killed is the cause, and not one that has
// exited or aborted because of that. Nothing is said of an order that is not known.
func TestKilledRankIsTheCause(t *testing.T) {
	report := newText()
	w := &watch{job: &Job{Report: report}, result: Result{Rank: -1}}
	of := func(rank int, c supervise.Change) exit {
		return exit{&process{Child: &supervise.Child{PID: 70 + rank}, local: rank}, c}
	}
	ends := []exit{
		of(0, supervise.Change{Code: supervise.Exited, Status: 1}), of(1, supervise.Change{Code: supervise.Dumped, Status: int(syscall.SIGABRT)}),
		of(2, supervise.Change{Code: supervise.Killed, Status: 9}), of(3, supervise.Change{Code: supervise.Exited}),
	}
	if first := causesFirst(ends[:2])[0]; first.p.local != 0 {
		t.Errorf("rank %d comes first, expected rank 0: an abort may be of its exit", first.p.local)
	}
	for _, e := range causesFirst(ends) {
		w.failed(e)
	}
	if want := "mscclpp-run: rank 2 (pid 72) was killed by signal 9 (SIGKILL)\n"; report.String() != want {
		t.Errorf("report %q, expected %q", report.String(), want)
	}
}

// interactive runs a job of "report" ranks and hands out its signals.
func interactive(t *testing.T, n int, env ...string) (signals chan os.Signal, out *text, done chan Result) {
	j := helper(n, "report", env...)
	signals, out, done = make(chan os.Signal, 8), newText(), make(chan Result, 1)
	j.Signals, j.Stdout, j.Stderr = signals, out, out
	go func() {
		r, err := Run(t.Context(), j)
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	out.await(t, "ready", n)
	return signals, out, done
}

func TestSignalsAreForwarded(t *testing.T) {
	signals, out, done := interactive(t, 2)
	signals <- syscall.SIGUSR1
	out.await(t, "got user defined signal 1", 2)
	signals <- syscall.SIGUSR2
	out.await(t, "got user defined signal 2", 2)
	signals <- syscall.SIGTERM
	out.await(t, "got terminated", 2)
	if r := <-done; r.Code != 0 {
		t.Errorf("result %+v: ranks that end in order on SIGTERM have not failed", r)
	}
}

func TestSecondInterruptKills(t *testing.T) {
	signals, out, done := interactive(t, 2, "STUBBORN=1")
	signals <- syscall.SIGINT
	out.await(t, "got interrupt", 2)
	signals <- syscall.SIGINT
	select {
	case r := <-done:
		if r.Code != 137 {
			t.Errorf("result %+v, expected 137", r)
		}
	case <-time.After(patience / 2): // below the grace of helpers
		t.Fatal("the second interrupt did not kill")
	}
}

func TestEnvironment(t *testing.T) {
	j := helper(2, "environment", "SHOW=RANK,WORLD_SIZE,LOCAL_RANK,LOCAL_WORLD_SIZE,GROUP_RANK,MASTER_ADDR,MASTER_PORT,MSCCLPP_UNIQUE_ID,MSCCLPP_LISTEN_FD,MSCCLPP_LISTEN_KEEPER,MSCCLPP_JOB_ID,MSCCLPP_LAUNCH_ID",
		"RANK=77", "MSCCLPP_LISTEN_FD=9", "MSCCLPP_LISTEN_KEEPER=9")
	j.Place = Place{Local: 2, First: 2, World: 4, Node: 1, Nodes: 2, Job: "name", MasterAddr: "h0", MasterPort: 1234}
	j.UniqueID, j.ID = "the-id", "mark"
	_, out, _ := run(t, j)
	for _, want := range []string{"RANK=2\n", "RANK=3\n", "WORLD_SIZE=4\n", "LOCAL_RANK=0\n", "LOCAL_RANK=1\n", "LOCAL_WORLD_SIZE=2\n", "GROUP_RANK=1\n",
		"MASTER_ADDR=h0\n", "MASTER_PORT=1234\n", "MSCCLPP_UNIQUE_ID=the-id\n", "MSCCLPP_LISTEN_FD=\n", "MSCCLPP_LISTEN_KEEPER=\n", "MSCCLPP_JOB_ID=name\n", "MSCCLPP_LAUNCH_ID=mark\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "77") {
		t.Errorf("the rank of an outer job leaked:\n%s", out)
	}
}

func TestRank0InheritsTheListener(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	j := helper(2, "")
	j.Path, j.Args = sh, []string{"sh", "-c", `test "$RANK" = 1 || echo "from rank $RANK" $((MSCCLPP_LISTEN_KEEPER - PPID)) >&"$MSCCLPP_LISTEN_FD"`}
	j.Listener = write
	r, _, _ := run(t, j)
	if r.Code != 0 {
		t.Fatalf("result %+v", r)
	}
	// To its end: no process has the descriptor any more.
	_ = read.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(read); string(got) != "from rank 0 0\n" || err != nil {
		t.Errorf("through the inherited descriptor came %q, %v", got, err)
	}
}

// The end of rank 0 is the end of its listener, even if it leaves behind a process that
// inherited it: otherwise others would wait there for an answer.
func TestListenerEndsWithRank0(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	j := helper(2, "")
	if j.Listener, err = l.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if j.Path, err = exec.LookPath("sh"); err != nil {
		t.Fatal(err)
	}
	j.Args = []string{"sh", "-c", `test "$RANK" = 1 || { sleep 1000 & echo left; exit 0; }; exec sleep 1000`}
	out := newText()
	j.Stdout, j.Stderr, j.Report = out, out, out
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := begin(ctx, t, j)
	out.await(t, "left", 1)
	for start := time.Now(); ; {
		c, err := net.Dial("tcp", l.Addr().String())
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("rank 0 has ended, and a connection to its listener waits")
			}
			_ = c.Close()
		}
		if time.Since(start) > patience {
			t.Error("rank 0 has ended, and its listener takes connections")
			break
		}
	}
	cancel()
	<-done
}

func TestProgramsThatDoNotStart(t *testing.T) {
	dir := t.TempDir()
	notELF := filepath.Join(dir, "junk")
	if err := os.WriteFile(notELF, []byte("\x00\x01\x02"), 0o700); err != nil {
		t.Fatal(err)
	}
	noInterpreter := filepath.Join(dir, "script")
	if err := os.WriteFile(noInterpreter, []byte("#!/nonexistent/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		filepath.Join(dir, "missing"): {127, "no such file or directory"},
		notELF:                        {126, "exec format error: expected a program for this machine, or a script"},
		noInterpreter:                 {127, "the file is there, but not the interpreter"},
	} {
		j := helper(3, "")
		j.Path, j.Args = path, []string{path}
		r, err := Run(t.Context(), j)
		if err == nil || r.Code != want.code || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "rank 0") || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %+v, %v; expected code %d and an error that names it and says %q", path, r, err, want.code, want.text)
		}
	}
}

func TestWrongJobs(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"no ranks": func(j *Job) { j.Place.Local = 0 },
		"a crowd": func(j *Job) {
			j.Place.Local, j.Place.World, j.Path = MaxRanks+1, MaxRanks+1, "/nonexistent"
		},
		"overlap":    func(j *Job) { j.Place.First = 1 },
		"masks":      func(j *Job) { j.Masks = make([]Mask, 1) },
		"no program": func(j *Job) { j.Path = "" },
	} {
		j := helper(2, "environment")
		change(&j)
		if _, err := Run(t.Context(), j); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v, expected ErrInvalid", name, err)
		}
	}
}

func TestMissingSupervisorIsReportedOnly(t *testing.T) {
	j := helper(1, "environment")
	j.Supervisor = []string{"/nonexistent/supervisor"}
	r, _, report := run(t, j)
	if r.Code != 0 || !strings.Contains(report, "no supervisor") {
		t.Errorf("result %+v, report %q", r, report)
	}
}
