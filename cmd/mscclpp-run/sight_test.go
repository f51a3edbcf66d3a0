package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/sight"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// asRank makes the test binary a rank of a job that is observed; its value is what the rank does: "calls=50 late=2 die=1".
const asRank = "RUN_TEST_AS_RANK"

// behavior is what a rank of beRank does. Ranks are -1 where none does it.
type behavior struct {
	calls int // 0: until standard input of rank 0 ends
	late  int // begins each call 20 ms behind all others
	dies  int // kills itself before the last call
	stops int // does not begin the last call until standard input of rank 0 ends
	idles int // does not meet the others before the last call until then
	slow  int // sends at most 50 kB a second over tcp

	others []*observe.View // of the rank that is late
}

func behaviorOf(text string) behavior {
	b := behavior{late: -1, dies: -1, stops: -1, idles: -1, slow: -1}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			panic(err)
		}
		*map[string]*int{"calls": &b.calls, "late": &b.late, "die": &b.dies, "stop": &b.stops, "idle": &b.idles, "slow": &b.slow}[name] = n
	}
	return b
}

func beRank(text string) int {
	b := behaviorOf(text)
	ctx, cancel := context.WithTimeout(context.Background(), 3*setUpBound)
	defer cancel()
	if r := os.Getenv("RANK"); os.Getenv("SIGHT_HOSTS") != "" { // ranks 0 and 1 are on one host, 2 and 3 on the other
		n, err := strconv.Atoi(cmp.Or(r, os.Getenv("OMPI_COMM_WORLD_RANK")))
		if err != nil {
			panic(err)
		}
		os.Setenv("MSCCLPP_BOOTSTRAP__HOST_ID", fmt.Sprint("host-", n/2))
		if n == b.slow {
			os.Setenv("MSCCLPP_TRANSPORT__TCP__MAX_RATE", "50000")
		}
	}
	job, err := mscclpp.Init(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer job.Close()
	if err := b.run(ctx, job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// run makes calls, and checks each sum. Rank 0 says in element 0 that its input has ended.
func (b *behavior) run(ctx context.Context, job *mscclpp.Job) error {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	in, out := make([]float32, 1000), make([]float32, 1000)
	for n := 1; b.calls == 0 || n <= b.calls; n++ {
		for i := range in {
			in[i] = float32(job.Rank() + i + n%100)
		}
		in[0] = 0
		if b.calls == 0 && job.Rank() == 0 && isClosed(ended) {
			in[0] = 1
		}
		if job.Rank() == b.idles && n == b.calls {
			<-ended
		}
		processes, err := job.World.AllGather(ctx, binary.LittleEndian.AppendUint32(nil, uint32(os.Getpid())))
		if err != nil {
			return err
		}
		if err := b.before(ctx, job.Rank(), n, processes, ended); err != nil {
			return err
		}
		if err := job.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), len(in), mscclpp.Float32, mscclpp.Sum, nil); err != nil {
			return err
		}
		ranks := job.Size()
		for i := 1; i < len(out); i++ {
			if want := float32(ranks*(i+n%100) + ranks*(ranks-1)/2); out[i] != want {
				return fmt.Errorf("call %d, element %d: %v, expected %v", n, i, out[i], want)
			}
		}
		if out[0] > 0 {
			return nil
		}
	}
	return nil
}

// before is called by each rank before call n.
func (b *behavior) before(ctx context.Context, rank, n int, processes [][]byte, ended <-chan struct{}) error {
	last := n == b.calls
	switch {
	case rank == b.late:
		if err := b.behind(ctx, uint64(n), processes); err != nil {
			return err
		}
		<-time.After(20 * time.Millisecond)
	case rank == b.dies && last:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case rank == b.stops && last:
		<-ended
	}
	return nil
}

// behind waits until all other ranks of the job have begun call n. The first one they prepare together, before they begin it.
func (b *behavior) behind(ctx context.Context, n uint64, processes [][]byte) error {
	if n == 1 {
		return nil
	}
	if b.others == nil {
		if err := b.findOthers(processes); err != nil {
			return err
		}
	}
	for _, v := range b.others {
		for !slices.ContainsFunc(v.States(), func(s observe.State) bool { return s.Name == "world" && s.Begun >= n }) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("rank %d has not begun call %d: %w", v.Info().Rank, n, ctx.Err())
			case <-time.After(100 * time.Microsecond):
			}
		}
	}
	return nil
}

func (b *behavior) findOthers(processes [][]byte) error {
	memories, err := observe.Find(false)
	if err != nil {
		return err
	}
	for _, m := range memories {
		for _, v := range m.Views() {
			pid := binary.LittleEndian.AppendUint32(nil, uint32(v.Info().PID))
			if v.Info().PID != os.Getpid() && slices.ContainsFunc(processes, func(p []byte) bool { return bytes.Equal(p, pid) }) {
				b.others = append(b.others, v)
			}
		}
	}
	if len(b.others) != len(processes)-1 {
		return fmt.Errorf("%d other ranks of %d are seen", len(b.others), len(processes))
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// observed is mscclpp-run with ranks that behave so, over transports whose plugins were built. Of 2 × 2 ranks each two are on
// one host.
func observed(t *testing.T, what string, over []string, args ...string) *exec.Cmd {
	t.Helper()
	plugins, err := filepath.Abs("../../bin/plugins")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"mscclpp-transport-shm", "mscclpp-transport-shm.kernels/manifest.json", "mscclpp-transport-tcp"} {
		if _, err := os.Stat(filepath.Join(plugins, file)); err != nil {
			t.Skipf("not built: %v: make build kernels", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-n", "4", "--set", "plugins.dirs=" + plugins, "--transports", strings.Join(over, ",")}, args...)
	c := command(t, append(args, "--", self)...)
	c.Env = append(c.Env, asRank+"="+what, "MSCCLPP_BOOTSTRAP__INSECURE=true", patientStart)
	if len(over) > 1 {
		c.Env = append(c.Env, "SIGHT_HOSTS=2")
	}
	return c
}

var layouts = map[string][]string{"4 over shm": {"shm"}, "2x2 over shm and tcp": {"shm", "tcp"}}

// A trace has every call of every rank, in its order, and names the rank for which the others wait.
func TestTraceHasAllCalls(t *testing.T) {
	for name, over := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "job.perfetto")
			const calls = 40
			c := observed(t, fmt.Sprint("calls=", calls, " late=2"), over, "--trace", file, "--set", "observe.report=true")
			code, _, errs := runs(c)
			if code != 0 {
				t.Fatalf("code %d: %s", code, errs)
			}
			trace, err := traces.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(trace.Ranks) != 4 {
				t.Fatalf("%d ranks, expected 4", len(trace.Ranks))
			}
			for _, r := range trace.Ranks {
				n := uint64(0)
				for _, x := range r.Calls {
					if x.Comm != "world" {
						continue
					}
					n++
					if x.Number != n || x.Kind != "allreduce" || x.Bytes != 4000 || x.Algorithm == "" || x.Begin > x.Chosen || x.Chosen > x.End {
						t.Errorf("rank %d: %+v: expected call %d, an allreduce of 4000 bytes", r.Rank, x, n)
					}
				}
				if n != calls || r.Lost != 0 || r.State != "left" {
					t.Errorf("rank %d: %d calls, %d records lost, %s: expected %d, 0 and left", r.Rank, n, r.Lost, r.State, calls)
				}
				kernelsAreIn(t, r, calls, len(over) == 1)
				if apart := len(over) > 1 && r.Rank >= 2; (r.ClockError > 0) != apart {
					t.Errorf("rank %d: an error of its clock of %d ns", r.Rank, r.ClockError)
				}
			}
			if s := trace.Tell(); len(s.Late) == 0 || s.Late[0].Rank != 2 || s.Late[0].Median < 2e6 {
				t.Errorf("late: %+v: expected rank 2 by some 20 ms", s.Late)
			}
			code, out, errs2 := runs(command(t, "trace", file))
			if code != 0 || !strings.Contains(out, "everybody waited for rank 2") {
				t.Errorf("code %d: %s%s: expected rank 2", code, out, errs2)
			}
			if !strings.Contains(errs, "report: rank 2 was behind in ") || !strings.Contains(errs, "report: everybody waited for rank 2: it came last in ") {
				t.Errorf("%s: expected the report to name rank 2", errs)
			}
			perfettoAccepts(t, file)
			perfettoAccepts(t, file, "--self-test") // it finds the same trace broken in many ways
		})
	}
}

// kernelsAreIn holds the launches of a rank against its calls. one: each call is one launch.
func kernelsAreIn(t *testing.T, r *traces.Rank, calls int, one bool) {
	t.Helper()
	during := map[uint64]int{}
	for _, l := range r.Launches {
		if l.Comm != "world" && one || l.Begin > l.End || l.Wait+l.Copy+l.Reduce+l.Packets > l.End-l.Begin {
			t.Errorf("rank %d: %+v: expected a launch of world, and parts that are no more than all", r.Rank, l)
		}
		during[l.Number]++
	}
	if len(r.Launches) < calls || one && len(r.Launches) != calls {
		t.Errorf("rank %d: %d launches in %d calls", r.Rank, len(r.Launches), calls)
	}
	if !one {
		return
	}
	waits := int64(0)
	for i := range r.Calls {
		c := &r.Calls[i]
		if c.Comm == "world" && during[c.Number] != 1 {
			t.Errorf("rank %d: %d launches in call %d: expected one", r.Rank, during[c.Number], c.Number)
		}
	}
	for _, p := range r.Pieces {
		if p.Name == "wait" && p.Peer == 2 {
			waits += p.End - p.Begin
		}
	}
	if late := r.Rank == 2; !late && waits < int64(calls)*2e6 {
		t.Errorf("rank %d: its kernels waited for rank 2 for %d ns: expected some 20 ms in each call", r.Rank, waits)
	}
}

// patient returns a function that waits a moment between two looks, and fails the test when there have been looks for too long.
func patient(t *testing.T, what string) func() {
	t.Helper()
	enough := time.Now().Add(setUpBound)
	return func() {
		if time.Now().After(enough) {
			t.Fatal(what)
		}
		<-time.After(time.Millisecond)
	}
}

// started starts a job, and returns its name and a function that lets it end.
func started(t *testing.T, c *exec.Cmd) (job string, end func()) {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		in.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the job: %v: %s", err, said.String())
		}
	}
	for patience := patient(t, "the job is not seen"); job == ""; patience() {
		job = jobOf(t, c.Process.Pid)
	}
	return job, end
}

// jobOf is the name of the job whose memory a launcher has made, once all ranks run.
func jobOf(t *testing.T, launcher int) string {
	t.Helper()
	memories, err := observe.Find(false)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for _, m := range memories {
		running, job := 0, ""
		for _, v := range m.Views() {
			i := v.Info()
			if parentOf(i.PID) == launcher && i.State == observe.StateRunning && len(v.States()) > 0 {
				running, job = running+1, i.Job
			}
		}
		if running == 4 {
			name = job
		}
		m.Close()
	}
	return name
}

func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return n
}

func statusOf(t *testing.T, job string) sight.JobStatus {
	t.Helper()
	code, out, errs := runs(command(t, "status", job, "--format", "json"))
	var all []sight.JobStatus
	if err := json.Unmarshal([]byte(out), &all); code != 0 || err != nil || len(all) != 1 {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	return all[0]
}

// Another terminal sees a running job, and which rank is slow.
func TestStatusOfARunningJob(t *testing.T) {
	t.Parallel()
	job, end := started(t, observed(t, "late=1", layouts["4 over shm"]))
	defer end()
	s := statusOf(t, job)
	if len(s.Ranks) != 4 || s.Size != 4 {
		t.Fatalf("%+v: expected 4 ranks", s)
	}
	for i, r := range s.Ranks {
		if r.Rank != i || r.State != "running" || r.Device != "host" || r.Records || r.Memory < 1<<20 || len(r.Comms) == 0 || r.Comms[0].Name != "world" {
			t.Errorf("%+v: expected rank %d, in the communicator world", r, i)
		}
	}
	// A busy machine may delay any rank once.
	for patience := patient(t, "rank 1 is not seen to be behind"); len(s.Behind) == 0 || s.Behind[0].Rank != 1; patience() {
		s = statusOf(t, job)
	}
	code, out, errs := runs(command(t, "status", job))
	if code != 0 || !strings.Contains(out, "job "+job+": 4 ranks, 4 of them here; records are off") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	svg := filepath.Join(t.TempDir(), "job.svg")
	code, out, errs = runs(command(t, "trace", "--job", job, "--for", "2s", "--svg", svg))
	if code != 0 || !strings.Contains(out, "rank 1 came last") && !strings.Contains(out, "waited for rank 1") {
		t.Errorf("code %d: %s%s: expected rank 1", code, out, errs)
	}
	if b, err := os.ReadFile(svg); err != nil || !bytes.Contains(b, []byte("rank 3, world")) {
		t.Errorf("%v: %s: expected the calls of rank 3", err, b)
	}
	end()
	if code, _, errs := runs(command(t, "status", job)); code != 1 || !strings.Contains(errs, "no such job") {
		t.Errorf("after the end: code %d: %s", code, errs)
	}
}

// Prometheus reads the numbers of a running job from its launcher.
func TestMetricsOfARunningJob(t *testing.T) {
	for name, over := range layouts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "socket")
			args := []string{"--metrics", "unix:" + path}
			if len(over) > 1 { // else the ranks drive the sockets, and there is no proxy
				args = append(args, "--set", "transport.tcp.drive=plugin")
			}
			_, end := started(t, observed(t, "late=1", over, args...))
			defer end()
			wanted := []string{
				`mscclpp_call_duration_seconds_count{algorithm="`, `mscclpp_wait_seconds_total{peer="1",rank="0"}`,
				`mscclpp_rank_calls_total{rank="3"}`, `mscclpp_rank_state{rank="2",state="running"} 1`,
			}
			if len(over) > 1 {
				wanted = append(wanted, `mscclpp_proxy_queue_depth_count{rank="0"}`, `mscclpp_proxy_bytes_total{rank="3"}`)
			}
			said := ""
			for patience := patient(t, "numbers are missing"); slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(said, w) }); patience() {
				said = scraped(t, path)
			}
			for _, f := range parsed(t, said) {
				if len(f.GetMetric()) == 0 {
					t.Errorf("%s is empty", f.GetName())
				}
			}
			end()
			if _, err := os.Stat(path); err == nil {
				t.Error("the socket stays behind the job")
			}
		})
	}
	code, _, errs := runs(command(t, "-n", "1", "--metrics", "here", "--", "true"))
	if code != 1 || !strings.Contains(errs, `observe.metrics: invalid: "here": expected PORT, HOST:PORT or unix:PATH`) {
		t.Errorf("code %d: %s", code, errs)
	}
}

func scraped(t *testing.T, path string) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://job/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := transport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parsed reads metrics with Prometheus' own parser.
func parsed(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return all
}

// A call that some ranks have begun and another one has not is named.
func TestStatusNamesTheMissingRank(t *testing.T) {
	t.Parallel()
	job, end := started(t, observed(t, "calls=3 stop=0", layouts["4 over shm"]))
	defer end()
	for patience := patient(t, "call 3 without rank 0 is not seen"); ; patience() {
		s := statusOf(t, job)
		for _, o := range s.Open {
			if o.Comm == "world" && o.Number == 3 && fmt.Sprint(o.In, o.Without) == "[1 2 3] [0]" {
				code, out, errs := runs(command(t, "status", job))
				if code != 0 || !strings.Contains(out, "call 3 of world, allreduce of 3.906 KiB, was begun by ranks 1-3; rank 0 has not begun it") {
					t.Errorf("code %d: %s%s", code, out, errs)
				}
				code, out, errs = runs(command(t, "status", job, "--dump"))
				for r := range 4 {
					if code != 0 || !strings.Contains(out, fmt.Sprintf("comm world: rank %d of 4: running", r)) {
						t.Errorf("code %d: %s%s: expected the channels of rank %d", code, out, errs, r)
					}
				}
				return
			}
		}
	}
}

// Records that are switched on and off a hundred times change no result, and leave nothing behind in the ranks.
func TestRecordsAreSwitchedInARunningJob(t *testing.T) {
	t.Parallel()
	job, end := started(t, observed(t, "", layouts["4 over shm"]))
	defer end()
	memories, err := observe.Find(true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, m := range memories {
			m.Close()
		}
	}()
	for _, m := range memories {
		views := m.Views()
		if len(views) == 0 || views[0].Info().Job != job {
			continue
		}
		files := func() (n int) {
			for _, v := range views {
				list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.Info().PID))
				if err != nil {
					t.Fatal(err)
				}
				n += len(list)
			}
			return n
		}
		for patience := patient(t, "the job stands still"); views[0].States()[0].Ended < 2; { // the first call opens files for all
			patience()
		}
		before := files()
		var cursor observe.Cursor
		records := 0
		for range 100 {
			if err := m.Switch(true); err != nil {
				t.Fatal(err)
			}
			patience := patient(t, "the job stands still")
			for begun := views[0].States()[0].Ended; views[0].States()[0].Ended < begun+2; {
				patience()
			}
			if err := m.Switch(false); err != nil {
				t.Fatal(err)
			}
			for _, s := range views[0].Read(&cursor) {
				records += len(s.Records)
			}
		}
		if records < 300 {
			t.Errorf("%d records of 200 calls", records)
		}
		patience := patient(t, "the ranks keep files open that they had not before the records")
		for files() > before { // a rank may have one open for a moment
			patience()
		}
	}
	end() // the ranks have compared every sum
}
