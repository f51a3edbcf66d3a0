package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/launch"
)

// fakeSSH makes the test binary an ssh that leads to hosts of the tests' own making: the
// name of a host, up to a dot, says what it is like.
const fakeSSH = "MSCCLPP_TEST_SSH"

func TestMain(m *testing.M) {
	if os.Getenv(fakeSSH) != "" {
		os.Exit(host(os.Args[1], os.Args[2]))
	}
	settle = patience
	os.Setenv(fakeSSH, "1")
	os.Exit(m.Run())
}

// host is such a host, seen through ssh. It returns ssh's exit code.
func host(name, command string) int {
	kind, _, _ := strings.Cut(name, ".")
	out := &frames{w: os.Stdout}
	switch kind {
	case "unreachable":
		fmt.Fprintln(os.Stderr, "ssh: no route to host")
		return 255
	case "echo": // a command that is no ssh
		fmt.Println("hi", command)
		return 0
	case "nologin":
		fmt.Println("This account is not available.")
		return 1
	case "bare":
		fmt.Fprintln(os.Stderr, "sh: mscclpp-run: not found")
		return 127
	case "old":
		fmt.Println("mscclpp-run agent 1") // it says how many GPUs there are in its Hello
	case "loud":
		fmt.Print(strings.Repeat("welcome ", maxBanner/4))
	case "greets":
		fmt.Printf("welcome\n%s\r\n", greeting) // a login shell's words, and a terminal's end of line
	case "silent":
	default:
		fmt.Println(greeting)
	}
	switch kind {
	case "old", "loud", "silent":
		_, _ = io.Copy(io.Discard, os.Stdin) // until the launcher hangs up
		return 0
	case "rude":
		_ = out.write(kindOut, []byte("no hello"))
	case "garbled":
		_ = out.write(kindHello, []byte("{"))
	case "endless":
		_, _ = os.Stdout.Write(binary.LittleEndian.AppendUint32([]byte{kindHello}, maxFrame+1))
	case "newer":
		_ = out.value(kindHello, Hello{Version: "v2", CPUs: 2})
	case "gpus":
		_ = out.value(kindHello, Hello{Version: "v1", CPUs: 8})
	default:
		_ = out.value(kindHello, Hello{Version: "v1", CPUs: 2})
	}
	f, err := readFrame(os.Stdin)
	if err == nil && f.kind == kindCount {
		if !answers(kind, f, out) {
			_, _ = io.Copy(io.Discard, os.Stdin) // until the launcher hangs up
			return 1
		}
		f, err = readFrame(os.Stdin)
	}
	if err != nil {
		return 1 // the launcher gave up, or has no rank for this host
	}
	s, err := decode[Spec](f)
	if err != nil || f.kind != kindSpec {
		return 1
	}
	if s.Listen && kind != "lost" {
		_ = out.value(kindRendezvous, rendezvous{UniqueID: "the-id", MasterAddr: "10.0.0.7", MasterPort: 4711})
	}
	return ranks(kind, name, command, s, out)
}

// answers are the replies of hosts to the question how many devices they have.
func answers(kind string, f frame, out *frames) bool {
	c, err := decode[Count](f)
	switch {
	case kind == "old-count":
		_ = out.value(kindEnd, end{Error: "invalid: the launcher began with a message 'q': expected 's'"})
		return false
	case kind == "mute":
		return false
	case err != nil:
		_ = out.value(kindCounted, counted{Failed: err.Error()})
	case len(c.Backends) == 1 && c.Backends[0] == Backend{"acme", "/opt/acme.so", "12"} && c.Type == "acme":
		_ = out.value(kindCounted, counted{Devices: 4})
	case kind == "gpus":
		_ = out.value(kindCounted, counted{Devices: 3})
	case kind == "broken":
		_ = out.value(kindCounted, counted{Failed: "/opt/acme.so: no table"})
	default:
		_ = out.value(kindCounted, counted{None: "no driver"})
	}
	return true
}

// spilled is how many thousand lines a host prints at the end.
const spilled = 200

// ranks plays what happens on a host once it knows its ranks.
func ranks(kind, name, command string, s Spec, out *frames) int {
	done := func(code int, text string) int {
		_ = out.value(kindEnd, end{Result: launch.Result{Code: code, Rank: -1}, Error: text})
		return 0
	}
	p := s.Place
	switch kind {
	case "dies":
		fmt.Fprintln(os.Stderr, "the power is off")
		return 255
	case "refuses":
		return done(127, "program nosuch: expected it on every host")
	case "fails":
		_ = out.value(kindFailed, launch.Result{Code: 3, Rank: p.First})
	case "falls":
		_ = out.value(kindFailed, launch.Result{Code: 3, Rank: p.First})
		return done(3, "")
	case "breaks":
		_ = out.write(kindFailed, []byte("?"))
	case "good", "greets", "newer", "gpus":
		_ = out.write(kindOut, fmt.Appendf(nil, "%s: ranks %d+%d of %d, node %d of %d, id %q, listen %v, at %s:%d, job %s, %s\n",
			name, p.First, p.Local, p.World, p.Node, p.Nodes, s.UniqueID, s.Listen, p.MasterAddr, p.MasterPort, p.Job, command))
		_ = out.write(kindErr, []byte("on stderr\n"))
		_ = out.write(kindReport, []byte("mscclpp-run: all is well\n"))
		return done(0, "")
	}
	if kind == "floods" {
		go func() {
			for out.write(kindOut, bytes.Repeat([]byte("flood\n"), 1000)) == nil {
			}
		}()
	}
	_ = out.write(kindOut, fmt.Appendf(nil, "%s: ready\n", name))
	for { // waits, fails, lost, reads, floods, spills
		f, err := readFrame(os.Stdin)
		switch {
		case err != nil:
			return 1
		case f.kind == kindSignal && kind == "spills": // the lines that it has printed so far
			for range spilled {
				_ = out.write(kindOut, bytes.Repeat([]byte("spill\n"), 1000))
			}
			return done(0, "")
		case f.kind == kindSignal:
			_ = out.write(kindOut, fmt.Appendf(nil, "%s: signal %d\n", name, f.body[0]))
			return done(128+int(f.body[0]), "")
		case f.kind == kindIn && len(f.body) == 0:
			return done(0, "")
		case f.kind == kindIn:
			_ = out.write(kindOut, bytes.ToUpper(f.body))
			_ = out.write(kindTaken, nil)
		}
	}
}

// text is a writer that may be written to by several.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// printed is what a job prints, by where.
type printed struct{ out, err, report text }

// over returns a job of two ranks on each host.
func over(t *testing.T, hosts ...string) (*Job, *printed) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := &printed{}
	j := &Job{
		Each: 2, SSH: []string{exe}, Agent: "/it's here", Version: "v1", Name: "job-1", Timeout: patience,
		Spec: Spec{Args: []string{"x"}, Grace: patience}, Stdout: &x.out, Stderr: &x.err, Report: &x.report,
	}
	for _, h := range hosts {
		j.Hosts = append(j.Hosts, Host{Name: h})
	}
	return j, x
}

// patience is longer than anything in a test takes, on a machine that does much else as well; tooLate is time enough for
// hosts that answer.
const (
	patience = 3 * time.Minute
	tooLate  = 10 * time.Second
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func contains(t *testing.T, what, got string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(got, p) {
			t.Errorf("%s: %q: expected %q in it", what, got, p)
		}
	}
}

// Each host gets its ranks; all but the first the id that this one made.
func TestJobOnTwoHosts(t *testing.T) {
	j, x := over(t, "good.a", "greets.b", "newer.c")
	result, err := Run(within(t), *j)
	if err != nil || result.Code != 0 || result.Rank != -1 {
		t.Fatalf("%+v, %v\n%s", result, err, x.report.String())
	}
	const agent = `'/it'\''s here' --serve-agent`
	contains(t, "stdout", x.out.String(),
		`good.a: ranks 0+2 of 6, node 0 of 3, id "", listen true, at :0, job job-1, `+agent,
		`greets.b: ranks 2+2 of 6, node 1 of 3, id "the-id", listen false, at 10.0.0.7:4711, job job-1, `+agent,
		`newer.c: ranks 4+2 of 6, node 2 of 3, id "the-id", listen false`)
	contains(t, "stderr", x.err.String(), "on stderr\non stderr\non stderr\n")
	contains(t, "report", x.report.String(), "mscclpp-run: host good.a: all is well\n", "warning: host newer.c has release v2, this one is v1")
}

// One rank for each GPU, or processor, is what hosts say that they have.
func TestRanksByWhatHostsHave(t *testing.T) {
	for of, want := range map[string][]string{
		"cpu":  {"ranks 0+8 of 10", "ranks 8+2 of 10"},
		"auto": {"ranks 0+3 of 5", "ranks 3+2 of 5"},
	} {
		j, x := over(t, "gpus.a", "good.b")
		j.Each, j.Of = 0, of
		if result, err := Run(within(t), *j); err != nil || result.Code != 0 {
			t.Errorf("%s: %+v, %v", of, result, err)
		}
		contains(t, of, x.out.String(), want...)
	}
	j, _ := over(t, "gpus.a", "good.b")
	j.Each, j.Of = 0, "gpu"
	if _, err := Run(within(t), *j); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "host good.b: one rank for each gpu") || !strings.Contains(err.Error(), "no driver") {
		t.Errorf("a host without GPUs: %v: expected ErrUnavailable that names it and says why", err)
	}
	j, _ = over(t, "gpus.a")
	j.Each, j.Of, j.Total = 0, "gpu", 5
	if _, err := Run(within(t), *j); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "-n 5") {
		t.Errorf("another number of ranks: %v: expected ErrInvalid", err)
	}
	j, x := over(t, "good.a", "gpus.b")
	j.Each, j.Of, j.Count = 0, "gpu", Count{Type: "acme", Backends: []Backend{{"acme", "/opt/acme.so", "12"}}}
	if result, err := Run(within(t), *j); err != nil || result.Code != 0 {
		t.Errorf("devices of a maker: %+v, %v", result, err)
	}
	contains(t, "devices of a maker", x.out.String(), "ranks 0+4 of 8", "ranks 4+4 of 8")
	for host, want := range map[string]string{
		"broken.b":    "host broken.b: invalid: one rank for each auto: /opt/acme.so: no table",
		"old-count.b": "host old-count.b: invalid: the launcher began with a message 'q'",
		"mute.b":      "1 of 2 hosts have not counted their devices within 10s: mute.b: give a number of ranks",
	} {
		j, _ := over(t, "gpus.a", host)
		j.Each, j.Of = 0, "auto"
		if host == "mute.b" {
			j.Timeout = tooLate
		}
		if _, err := Run(within(t), *j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
}

// The reason that a host does not answer is given for every one of them, with a remedy.
func TestHostsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"unreachable": {"host unreachable.x: unavailable: cannot be reached", "ssh: no route to host", "works without a question"},
		"echo":        {"host echo.x: unavailable: ", " ended in order, and no mscclpp-run has answered: hi '/it'", "--ssh"},
		"nologin":     {"cannot be reached (", ": exit status 1: This account is not available.)", "works without a question"},
		"bare":        {"mscclpp-run could not be started there", "not found", "--agent"},
		"old":         {"peer failed", `speaks version "1"`, `this one "2"`, "one release on all hosts"},
		"loud":        {"peer failed", "no greeting of mscclpp-run", "quiet login shell"},
		"rude":        {"peer failed", "first message is 'o', expected 'h'"},
		"garbled":     {"peer failed", "message 'h' of the other end"},
		"endless":     {"peer failed", "bytes from the other end of ssh: expected at most"},
		"silent":      {"unavailable", "1 of 2 hosts have not answered: silent.x", "bootstrap.timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			j, x := over(t, name+".x", "good.y")
			if name == "silent" {
				j.Timeout = tooLate
			}
			result, err := Run(within(t), *j)
			if err == nil || result.Code != 1 || x.out.String() != "" {
				t.Fatalf("%+v, %v, %q: expected an error before anything starts", result, err, x.out.String())
			}
			contains(t, "error", err.Error(), want...)
			if strings.Contains(err.Error(), "good.y") {
				t.Errorf("%v: names a host that is well", err)
			}
		})
	}
	j, _ := over(t, "bare.x", "unreachable.y")
	if _, err := Run(within(t), *j); err == nil || !strings.Contains(err.Error(), "bare.x") || !strings.Contains(err.Error(), "unreachable.y") {
		t.Errorf("%v: expected both hosts", err)
	}
	j, _ = over(t, "good.x")
	j.SSH = []string{"/nosuch/ssh"}
	if _, err := Run(within(t), *j); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "/nosuch/ssh") {
		t.Errorf("no ssh: %v: expected ErrUnavailable", err)
	}
}

// Events that end a job before it has started.
func TestStartThatIsCutShort(t *testing.T) {
	t.Parallel()
	j, _ := over(t, "silent.x")
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGINT
	j.Signals = signals
	if _, err := Run(within(t), *j); !errors.Is(err, framework.ErrClosed) || !strings.Contains(err.Error(), "before all hosts had answered") {
		t.Errorf("a signal: %v: expected ErrClosed", err)
	}
	j, _ = over(t, "good.x")
	signals <- syscall.SIGUSR1
	j.Signals = signals
	if result, err := Run(within(t), *j); err != nil || result.Code != 0 {
		t.Errorf("a signal that ends nothing: %+v, %v", result, err)
	}
	alone := func(name string) *Job { j, _ := over(t, name); return j }
	ctx, cancel := context.WithCancelCause(within(t))
	cause := errors.New("enough")
	cancel(cause)
	if _, err := Run(ctx, *alone("silent.x")); !errors.Is(err, cause) {
		t.Errorf("a context that ended: %v: expected its cause", err)
	}
	late := alone("lost.x")
	late.Timeout = tooLate
	if _, err := Run(within(t), *late); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "host lost.x has not said within 10s where the ranks meet") {
		t.Errorf("no rendezvous: %v: expected ErrUnavailable", err)
	}
	huge := alone("good.x")
	huge.Spec.Env = []string{strings.Repeat("x", maxFrame)}
	if _, err := Run(within(t), *huge); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "arguments and environment") {
		t.Errorf("an environment that is too large: %v: expected ErrInvalid", err)
	}
}

// When a host ends badly the others are asked to end, and the result is the first
// failure's.
func TestHostsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		code, rank int
		report     string
		err        string
	}{
		"dies":    {1, -1, "host dies.b: peer failed: the connection to mscclpp-run there ended", ""},
		"refuses": {127, -1, "", "host refuses.b: program nosuch"},
		"fails":   {3, 2, "", ""},
		"breaks":  {1, -1, "", "host breaks.b: peer failed: message 'f'"},
	} {
		t.Run(name, func(t *testing.T) {
			j, x := over(t, "waits.a", name+".b")
			result, err := Run(within(t), *j)
			if result.Code != c.code || result.Rank != c.rank {
				t.Errorf("%+v: expected code %d of rank %d", result, c.code, c.rank)
			}
			contains(t, "stdout", x.out.String(), "waits.a: signal 15\n")
			contains(t, "report", x.report.String(), c.report)
			var start *StartError
			if (c.err == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.err) || !errors.As(err, &start) || start.Code != c.code) {
				t.Errorf("%v: expected %q", err, c.err)
			}
		})
	}
}

// A host whose ranks left too early with code 0 has not failed, but the others fail of
// it: it is named, unless it ended because it was asked to.
func TestFailureNamesHostsThatLeftBefore(t *testing.T) {
	for first, want := range map[string]string{
		"good.a":   "mscclpp-run: host good.a: ranks 0 to 1 ended with code 0 without being asked to\n",
		"spills.a": "",
	} {
		j, x := over(t, first, "falls.b")
		if want != "" {
			j.Spec.Linger = patience // it ends by itself, though perhaps after the other
		}
		if result, err := Run(within(t), *j); err != nil || result.Code != 3 {
			t.Errorf("%s: %+v, %v", first, result, err)
		}
		if got := x.report.String(); strings.Contains(got, "without being asked") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: report %q, expected %q", first, got, want)
		}
	}
}

// Of many such hosts the first are named, and the others counted.
func TestFailureNamesSomeOfManyHostsThatLeft(t *testing.T) {
	hosts := []string{"falls.x"}
	for i := range 10 {
		hosts = append(hosts, fmt.Sprint("good.", i))
	}
	j, x := over(t, hosts...)
	j.Spec.Linger = patience
	if result, err := Run(within(t), *j); err != nil || result.Code != 3 {
		t.Errorf("%+v, %v", result, err)
	}
	got := x.report.String()
	if n := strings.Count(got, "without being asked"); n != 8 || !strings.Contains(got, "mscclpp-run: so did the ranks of 2 more hosts\n") {
		t.Errorf("%d hosts are named, expected 8 of 10: %q", n, got)
	}
}

// watched does something once, when a word was written so often.
type watched struct {
	io.Writer
	word  string
	often int
	do    func()
}

func (w *watched) Write(p []byte) (int, error) {
	if w.often > 0 {
		if w.often -= strings.Count(string(p), w.word); w.often <= 0 {
			w.do()
		}
	}
	return w.Writer.Write(p)
}

// Signals reach all hosts, and so does the end of the context.
func TestSignalsReachAllHosts(t *testing.T) {
	for number, do := range map[int]func(signals chan<- os.Signal, cancel func()){
		10: func(signals chan<- os.Signal, _ func()) { signals <- syscall.SIGUSR1 },
		2:  func(signals chan<- os.Signal, _ func()) { signals <- syscall.SIGINT },
		15: func(_ chan<- os.Signal, cancel func()) { cancel() },
	} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			j, x := over(t, "waits.a", "waits.b")
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			signals := make(chan os.Signal, 1)
			j.Signals = signals
			j.Stdout = &watched{&x.out, "ready", 2, func() { do(signals, cancel) }}
			result, err := Run(ctx, *j)
			if err != nil || result.Code != 128+number {
				t.Errorf("%+v, %v: expected the signal's code", result, err)
			}
			for _, h := range j.Hosts {
				contains(t, "stdout", x.out.String(), fmt.Sprintf("%s: signal %d\n", h.Name, number))
			}
		})
	}
}

// Output that has no room is reported, and no success.
func TestLostOutputIsReported(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	j, x := over(t, "good.a", "good.b")
	j.Stdout = full
	if result, err := Run(within(t), *j); err != nil || result.Code != 1 {
		t.Errorf("%+v, %v: expected code 1", result, err)
	}
	contains(t, "report", x.report.String(), "mscclpp-run: output of ranks was lost: write /dev/full: no space left on device\n")
}

// A reader that does not read keeps hosts waiting, but not a request to end the job.
func TestNobodyReads(t *testing.T) {
	j, x := over(t, "floods.a", "floods.b")
	read, write := io.Pipe()
	defer read.Close()
	signals := make(chan os.Signal, 1)
	j.Signals = signals
	j.Stdout = &watched{&x.out, "flood", 1, func() {
		signals <- syscall.SIGTERM
		_, _ = write.Write([]byte("never read"))
	}}
	result, err := Run(within(t), *j)
	if err != nil || result.Code != 128+15 {
		t.Errorf("%+v, %v: expected the signal's code", result, err)
	}
	contains(t, "report", x.report.String(), "output of ranks was lost: nobody has read it")
}

// A reader, if a slow one, gets all that ranks print when they are asked to end.
func TestSlowReaderLosesNothing(t *testing.T) {
	j, x := over(t, "spills.a", "spills.b")
	signals := make(chan os.Signal, 1)
	j.Signals = signals
	read, write := io.Pipe()
	j.Stdout = &watched{write, "ready", 2, func() { signals <- syscall.SIGTERM }}
	copied := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(&x.out, read, make([]byte, 600)) // in many steps
		copied <- err
	}()
	result, err := Run(within(t), *j)
	write.Close()
	if err := <-copied; err != nil {
		t.Error(err)
	}
	if err != nil || result.Code != 0 || x.report.String() != "" {
		t.Errorf("%+v, %v, report %q", result, err, x.report.String())
	}
	if n := strings.Count(x.out.String(), "spill\n"); n != 2*spilled*1000 {
		t.Errorf("%d lines, expected %d", n, 2*spilled*1000)
	}
}

// Standard input goes to the first rank, piece by piece, and its end as well.
func TestStandardInput(t *testing.T) {
	j, x := over(t, "reads.a", "good.b")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	j.Stdin = read
	long := strings.Repeat("a long line of input\n", 10_000)
	go func() {
		_, _ = io.WriteString(write, long)
		write.Close()
	}()
	result, err := Run(within(t), *j)
	if err != nil || result.Code != 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	// Output of the other host comes between two pieces, which do not end with lines here.
	got := regexp.MustCompile(`(good\.b|reads\.a): .*\n`).ReplaceAllString(x.out.String(), "")
	if got != strings.ToUpper(long) {
		t.Errorf("%d bytes came, expected %d", len(got), len(long))
	}
}
