package nccl

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// obedient is a rank that carries out commands, and the lines that it prints.
type obedient struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	log     []string // lines of the library
	end     func() error
}

// obey starts n ranks of a job, each with variables of its own.
func obey(t *testing.T, n int, own func(rank int) []string) []*obedient {
	t.Helper()
	program, m := compile(t, "ras.c"), newMaker(t)
	all := make([]*obedient, n)
	for r := range all {
		c := exec.CommandContext(t.Context(), program)
		c.Env = append(environ(t, own(r)...), fmt.Sprintf("TEST_RANK=%d", r), fmt.Sprintf("TEST_SIZE=%d", n), "TEST_ID="+hex.EncodeToString(m.ids[0][:]))
		c.Stderr = os.Stderr
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
		all[r] = &obedient{command: c, in: in, out: bufio.NewScanner(out), end: sync.OnceValue(func() error {
			_ = in.Close()
			_, _ = io.Copy(io.Discard, out)
			return c.Wait()
		})}
		t.Cleanup(func() { _ = all[r].end() })
	}
	return all
}

// tell gives a rank a command, done waits until it has carried that out, and said until it has printed a part of a line.
func (o *obedient) tell(t *testing.T, what string) {
	t.Helper()
	if _, err := io.WriteString(o.in, what+"\n"); err != nil {
		t.Fatal(err)
	}
}

func (o *obedient) said(t *testing.T, part string) {
	t.Helper()
	for o.out.Scan() {
		o.log = append(o.log, o.out.Text())
		if strings.Contains(o.out.Text(), part) {
			return
		}
	}
	t.Fatalf("a rank has ended before it printed %q", part)
}

func (o *obedient) done(t *testing.T, what string) {
	t.Helper()
	for o.out.Scan() {
		if o.out.Text() == "did "+what {
			return
		}
		o.log = append(o.log, o.out.Text())
	}
	t.Fatalf("a rank has ended before it did %q", what)
}

func everyone(t *testing.T, ranks []*obedient, what string) {
	t.Helper()
	for _, o := range ranks {
		o.tell(t, what)
	}
	for _, o := range ranks {
		o.done(t, what)
	}
}

var listening = regexp.MustCompile(`RAS client listening socket at (\S+)<(\d+)>`)

// service is where a rank's service answers, by the line of the log.
func (o *obedient) service(t *testing.T) string {
	t.Helper()
	for _, line := range o.log {
		if m := listening.FindStringSubmatch(line); m != nil {
			return net.JoinHostPort(m[1], m[2])
		}
	}
	t.Fatalf("no line of the service in %q", o.log)
	return ""
}

// rest is the time, in seconds, that a client gives the other ranks to answer in: as much as it may.
const rest = 60

// ask is a conversation as ncclras has it.
func ask(t *testing.T, service string, timeout int, format, status string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", service, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	lines := bufio.NewReader(c)
	for _, turn := range [][2]string{{"CLIENT PROTOCOL 2", "SERVER PROTOCOL 2"}, {fmt.Sprint("TIMEOUT ", timeout), "OK"}, {"SET FORMAT " + format, "OK"}} {
		_, _ = fmt.Fprintln(c, turn[0])
		if got, err := lines.ReadString('\n'); got != turn[1]+"\n" {
			t.Fatalf("%s: %q, %v: expected %s", turn[0], got, err, turn[1])
		}
	}
	_, _ = fmt.Fprintln(c, status)
	text, err := io.ReadAll(lines)
	if err != nil {
		t.Fatalf("%s: %v after %q", status, err, text)
	}
	return string(text)
}

// rasReport is what programs read of the service's JSON.
type rasReport struct {
	Version       string `json:"nccl_version"`
	Timestamp     string `json:"timestamp"`
	Count         int    `json:"communicators_count"`
	Communicators []struct {
		Hash    string `json:"hash"`
		Size    int    `json:"size"`
		Count   int    `json:"ranks_count"`
		Missing int    `json:"missing_ranks_count"`
		Ranks   []struct {
			Rank   int    `json:"rank"`
			Host   string `json:"host"`
			Pid    int    `json:"pid"`
			Status struct {
				Init     *int  `json:"init_state"`
				Error    *int  `json:"async_error"`
				Finalize *bool `json:"finalize_called"`
				Destroy  *bool `json:"destroy_flag"`
				Abort    *bool `json:"abort_flag"`
			} `json:"status"`
			Counts map[string]int `json:"collective_counts"`
		} `json:"ranks"`
		MissingRanks []struct {
			Rank   int    `json:"rank"`
			Host   string `json:"host"`
			Pid    int    `json:"pid"`
			Status struct {
				Unresponsive bool `json:"unresponsive"`
				Dead         bool `json:"considered_dead"`
			} `json:"status"`
		} `json:"missing_ranks"`
	} `json:"communicators"`
	RAS struct {
		Timeouts int `json:"timeouts_count"`
	} `json:"ras"`
}

func askJSON(t *testing.T, service string, timeout int) rasReport {
	t.Helper()
	text := ask(t, service, timeout, "json", "STATUS")
	var r rasReport
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if r.Version != "2.28.9" || r.Timestamp == "" || r.Count != len(r.Communicators) {
		t.Errorf("got\n%s", text)
	}
	for _, c := range r.Communicators {
		if c.Count != len(c.Ranks) || c.Missing != len(c.MissingRanks) || c.Count+c.Missing != c.Size || c.Hash == "" {
			t.Errorf("got\n%s", text)
		}
	}
	return r
}

// ownPort gives each rank a service of its own, at a port that nobody else has.
func ownPort(int) []string {
	return []string{"NCCL_RAS_ADDR=127.0.0.1:0", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=RAS"}
}

func expectText(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, want := range parts {
		part, not := strings.CutPrefix(want, "!")
		if strings.Contains(text, part) == not {
			t.Errorf("expected %q in\n%s", want, text)
		}
	}
}

// Any rank's service tells what all ranks do: communicators, counts of collectives, and what differs.
func TestRAS(t *testing.T) {
	t.Parallel()
	ranks := obey(t, 3, ownPort)
	// A rank that waits for the others is no fault.
	ranks[0].tell(t, "init")
	ranks[0].said(t, "RAS client listening socket")
	text := ask(t, ranks[0].service(t), rest, "text", "STATUS")
	expectText(t, text, "    0         1         1         3         3         1      INIT      OK\n", "!MISMATCH", "!INCOMPLETE", "!ERROR")
	for _, o := range ranks[1:] {
		o.tell(t, "init")
	}
	for _, o := range ranks {
		o.done(t, "init")
	}
	everyone(t, ranks, "split")
	everyone(t, ranks, "sum")
	everyone(t, ranks, "broadcasts")
	for _, o := range ranks {
		service := o.service(t)
		r := askJSON(t, service, rest)
		if len(r.Communicators) != 2 || r.Communicators[0].Size != 3 || r.Communicators[1].Size != 2 || r.RAS.Timeouts != 0 {
			t.Fatalf("%+v", r)
		}
		for i, rank := range r.Communicators[0].Ranks {
			s := rank.Status
			if rank.Rank != i || rank.Pid != ranks[i].command.Process.Pid || net.ParseIP(rank.Host) == nil {
				t.Errorf("%+v", rank)
			}
			if *s.Init != 0 || *s.Error != 0 || *s.Finalize || *s.Destroy || *s.Abort {
				t.Errorf("%+v", s)
			}
			if len(rank.Counts) != 8 || rank.Counts["AllReduce"] != 1 || rank.Counts["Broadcast"] != 2 || rank.Counts["AlltoAll"] != 0 {
				t.Errorf("%+v", rank.Counts)
			}
		}
		text := ask(t, service, rest, "text", "STATUS")
		expectText(t, text, "NCCL version 2.28.9", "mscclpp-go", "      1          3            1          3        3\n",
			"    0         1         1         3         3         3   RUNNING      OK\n    1         1         1         2         2         2   RUNNING      OK\n", "!MISMATCH", "!INCOMPLETE", "!DEAD")
	}

	// Rank 0 is in a call that the others have not made: the report says which, and who.
	ranks[0].tell(t, "sum")
	for askJSON(t, ranks[1].service(t), rest).Communicators[0].Ranks[0].Counts["AllReduce"] != 2 {
		if t.Context().Err() != nil {
			t.Fatal("the call of rank 0 is not counted")
		}
	}
	text = ask(t, ranks[1].service(t), rest, "text", "VERBOSE STATUS")
	expectText(t, text, "MISMATCH", "Communicator ranks have different AllReduce operation counts", "2 ranks have launched up to operation 1",
		fmt.Sprintf("Rank 0 has launched up to operation 2 -- GPU 0 managed by process %d on node ", ranks[0].command.Process.Pid), "!different Broadcast", "!different status")
	for _, o := range ranks[1:] {
		o.tell(t, "sum")
	}
	for _, o := range ranks {
		o.done(t, "sum")
	}

	ranks[2].tell(t, "finalize")
	ranks[2].done(t, "finalize")
	text = ask(t, ranks[0].service(t), rest, "text", "STATUS")
	expectText(t, text, "different status", "Rank 2 has status FINALIZE", "2 ranks have status RUNNING")
	everyone(t, ranks, "destroy")
	if r := askJSON(t, ranks[0].service(t), rest); len(r.Communicators) != 0 {
		t.Errorf("communicators that were destroyed: %+v", r)
	}
	for _, o := range ranks {
		if err := o.end(); err != nil {
			t.Error(err)
		}
	}
}

// stopped waits until all threads of a process have stopped, or go on.
func stopped(t *testing.T, pid int, want bool) {
	t.Helper()
	for t.Context().Err() == nil {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		n := 0
		for _, path := range tasks {
			text, _ := os.ReadFile(path)
			if _, state, ok := strings.Cut(string(text), ") "); ok && strings.HasPrefix(state, "T") {
				n++
			}
		}
		if want && n == len(tasks) && n > 0 || !want && n == 0 {
			return
		}
	}
}

// A rank that stands still is shown after the time that the client gives it, and one that was killed at once.
func TestRASOfStoppedAndDeadRanks(t *testing.T) {
	t.Parallel()
	ranks := obey(t, 2, ownPort) // no other rank has to answer in the short time that is given
	everyone(t, ranks, "init")
	service, pid := ranks[0].service(t), ranks[1].command.Process.Pid
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		stopped(t, pid, s == syscall.SIGSTOP)
	}
	signal(syscall.SIGSTOP)
	r := askJSON(t, service, 1)
	text := ask(t, service, 1, "text", "STATUS")
	signal(syscall.SIGCONT)
	if c := r.Communicators[0]; len(c.MissingRanks) != 1 || c.MissingRanks[0].Rank != 1 || c.MissingRanks[0].Pid != pid || !c.MissingRanks[0].Status.Unresponsive || c.MissingRanks[0].Status.Dead || r.RAS.Timeouts != 1 {
		t.Errorf("%+v", r)
	}
	expectText(t, text, "INCOMPLETE\n  Missing communicator data from 1 job process\n", fmt.Sprintf("Process %d on node ", pid), fmt.Sprintf("Rank 1 -- managed by process %d on node", pid), "TIMEOUT", "!DEAD")
	if r := askJSON(t, service, rest); r.Communicators[0].Missing != 0 {
		t.Errorf("a rank that goes on: %+v", r)
	}
	everyone(t, ranks, "sum")

	_ = ranks[1].command.Process.Kill()
	_ = ranks[1].end()
	r = askJSON(t, service, rest)
	if c := r.Communicators[0]; len(c.MissingRanks) != 1 || c.MissingRanks[0].Rank != 1 || !c.MissingRanks[0].Status.Dead || r.RAS.Timeouts != 0 {
		t.Errorf("%+v", r)
	}
	expectText(t, ask(t, service, rest, "text", "STATUS"), "DEAD\n  1 job process is considered dead", fmt.Sprintf("Process %d on node ", pid))
}

// Two jobs with services of their own, and two at one port: an answer is of one job.
func TestRASOfTwoJobs(t *testing.T) {
	t.Parallel()
	one := obey(t, 2, ownPort)
	everyone(t, one, "init")
	shared := one[0].service(t)
	for name, own := range map[string]func(int) []string{"own ports": ownPort, "one port": func(int) []string {
		return []string{"NCCL_RAS_ADDR=" + shared, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=RAS"}
	}} {
		other := obey(t, 3, own)
		everyone(t, other, "init")
		sizes := map[int]bool{}
		for range 20 {
			for _, service := range []string{shared, other[0].service(t)} {
				r := askJSON(t, service, rest)
				if len(r.Communicators) != 1 || r.Communicators[0].Missing != 0 {
					t.Fatalf("%s: %+v", name, r)
				}
				sizes[r.Communicators[0].Size] = true
				if name == "own ports" && (r.Communicators[0].Size == 2) != (service == shared) {
					t.Errorf("%s: the service of one job answers for the other: %+v", name, r)
				}
			}
		}
		if name == "own ports" && len(sizes) != 2 {
			t.Errorf("%s: communicators of %v ranks", name, sizes)
		}
		for _, o := range other {
			if err := o.end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A port that somebody else has, an address that is none, and a service that is off are no failure.
func TestRASIsNoFailure(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ranks := obey(t, 3, func(rank int) []string {
		return append(ownPort(rank), []string{"NCCL_RAS_ADDR=" + taken.Addr().String(), "NCCL_RAS_ADDR=nowhere", "NCCL_RAS_ENABLE=0"}[rank])
	})
	everyone(t, ranks, "init")
	everyone(t, ranks, "sum")
	for r, want := range []string{"RAS failed to establish a client listening socket at 127.0.0.1<", "RAS failed to establish a client listening socket at nowhere: expected", "!RAS "} {
		expectText(t, strings.Join(ranks[r].log, "\n"), want)
	}
	everyone(t, ranks, "destroy")

	// A rank whose service is off does not answer; the others do.
	ranks = obey(t, 3, func(rank int) []string { return append(ownPort(rank), fmt.Sprintf("NCCL_RAS_ENABLE=%d", rank%2)) })
	everyone(t, ranks, "init")
	r := askJSON(t, ranks[1].service(t), rest)
	if c := r.Communicators[0]; c.Count != 1 || c.Missing != 2 || !c.MissingRanks[0].Status.Unresponsive || c.MissingRanks[1].Pid != ranks[2].command.Process.Pid || r.RAS.Timeouts != 0 {
		t.Errorf("%+v", r)
	}
}

// Without a network interface no rank has a service for the others, nor a token. They are not taken for this process.
func TestRASWithoutTokens(t *testing.T) {
	t.Parallel()
	ranks := obey(t, 2, func(rank int) []string { return append(ownPort(rank), "NCCL_OOB_NET_IFNAME=nowhere") })
	everyone(t, ranks, "init")
	r := askJSON(t, ranks[0].service(t), rest)
	if c := r.Communicators[0]; c.Count != 1 || c.Missing != 1 || !c.MissingRanks[0].Status.Unresponsive || c.MissingRanks[0].Pid != ranks[1].command.Process.Pid {
		t.Errorf("%+v", r)
	}
}

// Clients that are silent keep out later ones, which learn why, and no other process that asks.
func TestRASBounds(t *testing.T) {
	t.Parallel()
	ranks := obey(t, 2, ownPort)
	everyone(t, ranks, "init")
	service := ranks[1].service(t)
	hello := func() string {
		c, err := net.DialTimeout("tcp", service, patience)
		if err != nil {
			t.Error(err)
			return ""
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = fmt.Fprintln(c, "CLIENT PROTOCOL 2")
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	var silent sync.WaitGroup // all at once: the service has 30 s of patience with each
	for range 16 {
		silent.Go(func() {
			if got := hello(); got != "SERVER PROTOCOL 2\n" {
				t.Errorf("one of the first clients: %q", got)
			}
		})
	}
	silent.Wait()
	if got := hello(); got != "ERROR: 16 clients are served already: expected one of them to end first\n" {
		t.Errorf("connection 17: %q", got)
	}
	if r := askJSON(t, ranks[0].service(t), rest); r.Communicators[0].Missing != 0 || r.RAS.Timeouts != 0 {
		t.Errorf("a process that asks one with many clients: %+v", r)
	}
}

// Clients that ask all the time, say nonsense, nothing, or too much, and strangers at the port for other processes do not disturb a job.
func TestRASDoesNotDisturb(t *testing.T) {
	t.Parallel()
	ranks := obey(t, 2, ownPort)
	everyone(t, ranks, "init")
	service := ranks[0].service(t)
	for _, c := range []struct{ line, want string }{
		{"NONSENSE\r\n", "ERROR: Unknown command NONSENSE\n"}, {"timeout -1\n", "ERROR: Invalid timeout value -1\n"}, {"timeout x\n", "ERROR: Invalid timeout value x\n"},
		{"set format xml\n", "ERROR: Invalid format xml\n"}, {"timeout 0\n", "OK\n"}, {strings.Repeat("x", 4096), ""},
	} {
		conn, err := net.Dial("tcp", service)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, c.line)
		if got, _ := bufio.NewReader(conn).ReadString('\n'); got != c.want {
			t.Errorf("%q: %q, expected %q", c.line, got, c.want)
		}
		_ = conn.Close()
	}
	var silent []net.Conn
	for range 8 {
		conn, err := net.Dial("tcp", service)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	for _, o := range ranks {
		o.tell(t, "sums")
	}
	for range 10 {
		if r := askJSON(t, service, rest); len(r.Communicators) != 1 || r.Communicators[0].Missing != 0 {
			t.Errorf("%+v", r)
		}
		left, err := net.Dial("tcp", service) // a client that does not wait for its answer
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(left, "STATUS\n")
		_ = left.Close()
	}
	for _, o := range ranks {
		o.done(t, "sums")
	}
	for _, conn := range silent {
		_ = conn.Close()
	}
	everyone(t, ranks, "destroy")
	for _, o := range ranks {
		if err := o.end(); err != nil {
			t.Error(err)
		}
	}
}
