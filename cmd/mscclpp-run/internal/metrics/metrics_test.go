package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// ranks are some that this process plays, with a clock that tests set.
type ranks struct {
	memory *observe.Memory
	all    []*observe.Rank
	boards []*observe.Board
	now    atomic.Int64 // of all clocks; samples of ranks read it
}

func playRanks(t *testing.T, n int) *ranks {
	t.Helper()
	m, err := observe.New(n, true)
	if err != nil {
		t.Fatal(err)
	}
	r := &ranks{memory: m}
	r.now.Store(1e9)
	t.Cleanup(func() {
		for _, x := range r.all {
			_ = x.Close()
		}
		_ = m.Close()
	})
	for i := range n {
		x := r.open(t, i, n)
		r.all = append(r.all, x)
		r.boards = append(r.boards, x.Board("world", i, n))
	}
	return r
}

func (r *ranks) open(t *testing.T, rank, size int) *observe.Rank {
	t.Helper()
	env := func(name string) string {
		if name == observe.Env {
			return r.memory.Variable()
		}
		return ""
	}
	x, err := observe.Open(observe.Facts{
		Job: "a job", Rank: rank, Size: size, Local: rank, HostID: "h", Getenv: env, Clock: r.now.Load,
	})
	if err != nil {
		t.Fatal(err)
	}
	x.Running()
	return x
}

func serve(t *testing.T, r *ranks, address string) *Server {
	t.Helper()
	s, err := Serve(address, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Follow(r.memory)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, s *Server, accept string) map[string]*dto.MetricFamily {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	url := s.Address()
	if path, found := strings.CutPrefix(url, "unix:"); found {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
		url = "http://job/metrics"
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Accept", accept)
	a, err := transport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		t.Fatal(a.Status)
	}
	all := map[string]*dto.MetricFamily{}
	for d := expfmt.NewDecoder(a.Body, expfmt.ResponseFormat(a.Header)); ; {
		f := &dto.MetricFamily{}
		if err := d.Decode(f); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[f.GetName()] = f
	}
}

// of is the metric of a family that has all of these labels: name, value, …
func of(t *testing.T, all map[string]*dto.MetricFamily, family string, labels ...string) *dto.Metric {
	t.Helper()
	for _, m := range all[family].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		fits := true
		for i := 0; i < len(labels); i += 2 {
			fits = fits && has[labels[i]] == labels[i+1]
		}
		if fits {
			return m
		}
	}
	t.Errorf("no %s of %v in %v", family, labels, all[family])
	return &dto.Metric{Counter: &dto.Counter{}, Gauge: &dto.Gauge{}, Histogram: &dto.Histogram{}}
}

const (
	text     = "text/plain;version=0.0.4"
	protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)

// Calls, their bytes, times and waits are counted as the ranks have written them.
func TestCallsAreCounted(t *testing.T) {
	for _, address := range []string{"0", "127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "socket")} {
		r := playRanks(t, 3)
		s := serve(t, r, address)
		for range 10 { // rank 2 begins 5 ms later, and all end 1 ms after that
			for i, b := range r.boards {
				if i == 2 {
					r.now.Add(5e6)
				}
				at := r.now.Load()
				b.Begin(at, collective.AllReduce, 4000, "one_shot", 0)
			}
			r.now.Add(1e6)
			for _, b := range r.boards {
				b.End()
			}
		}
		for _, accept := range []string{text, protobuf} {
			all := scrape(t, s, accept)
			h := of(t, all, "mscclpp_call_duration_seconds", "collective", "allreduce", "size", "16KiB", "algorithm", "one_shot").Histogram
			if sum := h.GetSampleSum(); h.GetSampleCount() != 30 || sum < 0.1299 || sum > 0.1301 {
				t.Errorf("%s: %v: expected 30 calls of 0.13 s", address, h)
			}
			if native := h.Schema != nil; native != (accept == protobuf) {
				t.Errorf("%s: %v: a native histogram is in protobuf alone", accept, h)
			}
			if n := of(t, all, "mscclpp_call_bytes_total", "collective", "allreduce").Counter.GetValue(); n != 120000 {
				t.Errorf("%v bytes, expected 120000", n)
			}
			for i, label := range []string{"0", "1", "2"} {
				if n := of(t, all, "mscclpp_rank_calls_total", "rank", label).Counter.GetValue(); n != 10 {
					t.Errorf("rank %s: %v calls, expected 10", label, n)
				}
				if i == 2 {
					continue
				}
				if w := of(t, all, "mscclpp_wait_seconds_total", "rank", label, "peer", "2").Counter.GetValue(); w < 0.0499 || w > 0.0501 {
					t.Errorf("rank %s waited %v s for rank 2, expected 0.05", label, w)
				}
			}
			if n := len(all["mscclpp_wait_seconds_total"].GetMetric()); n != 2 {
				t.Errorf("%d waits, expected those of ranks 0 and 1", n)
			}
			of(t, all, "mscclpp_rank_state", "rank", "1", "state", "running")
			of(t, all, "mscclpp_job_info", "id", "a job", "size", "3")
		}
	}
}

// Triggers of a proxy are counted with their time, their bytes, and how many were in its queue.
func TestProxiesAreCounted(t *testing.T) {
	r := playRanks(t, 1)
	s := serve(t, r, "0")
	view := r.memory.Views()[0]
	s.meter.mu.Lock()
	rank := s.meter.state(view)
	for _, x := range []observe.Record{ // as plugins write them
		{Time: 100, Event: observe.Trigger | observe.Begin, Bytes: 512, Block: 3},
		{Time: 2100, Event: observe.Trigger | observe.End, Bytes: 512, Block: 3},
	} {
		s.meter.take(view, rank, 7, &x, nil)
	}
	s.meter.mu.Unlock()
	all := scrape(t, s, text)
	if h := of(t, all, "mscclpp_proxy_queue_depth", "rank", "0").Histogram; h.GetSampleCount() != 1 || h.GetSampleSum() != 3 {
		t.Errorf("%v: expected one look at 3 triggers", h)
	}
	if h := of(t, all, "mscclpp_proxy_trigger_duration_seconds").Histogram; h.GetSampleCount() != 1 || h.GetSampleSum() < 1.9e-6 || h.GetSampleSum() > 2.1e-6 {
		t.Errorf("%v: expected one trigger of 2 µs", h)
	}
	if n := of(t, all, "mscclpp_proxy_bytes_total").Counter.GetValue(); n != 512 {
		t.Errorf("%v bytes, expected 512", n)
	}
}

// A rank that fails is counted by the party that it names, and its state is the new one alone.
func TestFailuresAreCounted(t *testing.T) {
	r := playRanks(t, 2)
	s := serve(t, r, "0")
	scrape(t, s, text)
	r.all[0].Fail(&framework.Error{Op: "wait", Peer: 1, Err: framework.ErrPeer})
	all := scrape(t, s, text)
	if n := of(t, all, "mscclpp_failures_total", "rank", "0", "culprit", "1").Counter.GetValue(); n != 1 {
		t.Errorf("%v failures, expected 1", n)
	}
	of(t, all, "mscclpp_rank_state", "rank", "0", "state", "failed")
	if n := len(all["mscclpp_rank_state"].GetMetric()); n != 2 {
		t.Errorf("%d states of 2 ranks", n)
	}
	if n := of(t, scrape(t, s, text), "mscclpp_failures_total", "rank", "0").Counter.GetValue(); n != 1 {
		t.Errorf("%v failures after another look, expected 1", n)
	}
}

// A communicator that takes the place of a closed one begins at zero, and no call counts twice.
func TestCountsOfReusedPlaces(t *testing.T) {
	r := playRanks(t, 1)
	s := serve(t, r, "0")
	for n := range 70 { // more than there are places
		b := r.all[0].Board("part", 0, 1)
		b.Begin(0, collective.AllGather, 8, "", 0)
		b.End()
		if got := of(t, scrape(t, s, text), "mscclpp_rank_calls_total", "rank", "0").Counter.GetValue(); got != float64(n+1) {
			t.Fatalf("%v calls, expected %d", got, n+1)
		}
		b.Close()
	}
}

// Addresses that cannot be are refused, and a socket belongs to its user.
func TestAddresses(t *testing.T) {
	r := playRanks(t, 1)
	taken := serve(t, r, "0")
	port := strings.TrimSuffix(strings.TrimPrefix(taken.Address(), "http://"), "/metrics")
	for _, address := range []string{"nowhere", port, "unix:" + t.TempDir(), "127.0.0.1:99999"} {
		if s, err := Serve(address, ""); err == nil {
			s.Close()
			t.Errorf("%s: no error", address)
		} else if !strings.Contains(err.Error(), "observe.metrics: ") || !strings.Contains(err.Error(), "expected ") {
			t.Errorf("%s: %v: expected the key, and what was expected", address, err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	serve(t, r, "unix:"+path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: expected a socket for this user alone", info, err)
	}
	if !strings.HasPrefix(serve(t, r, ":0").Address(), "http://127.0.0.1:") {
		t.Error("without a host it answers others than this one")
	}
}

// Names of metrics in this package are valid, and each has a help text.
func TestNames(t *testing.T) {
	r := playRanks(t, 2)
	for name, f := range scrape(t, serve(t, r, "0"), text) {
		if !model.LegacyValidation.IsValidMetricName(name) || f.GetHelp() == "" || !strings.HasPrefix(name, "mscclpp_") {
			t.Errorf("%s: %q", name, f.GetHelp())
		}
	}
}

// Counters go on when all ranks start again in a memory of their own, and when a rank starts again in the region that it had.
func TestCountersSurviveRestarts(t *testing.T) {
	r := playRanks(t, 2)
	s, err := Serve("0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	leave := s.Follow(r.memory)
	call := func(r *ranks, n int) {
		for range n {
			for _, b := range r.boards {
				b.Begin(b.Clock(), collective.AllReduce, 4096, "ring", 0)
			}
			r.now.Add(1e6)
			for _, b := range r.boards {
				b.End()
			}
		}
	}
	counted := func(want float64) {
		t.Helper()
		all := scrape(t, s, text)
		for _, x := range all["mscclpp_rank_calls_total"].GetMetric() {
			if x.GetCounter().GetValue() != want {
				t.Errorf("%v: expected %v calls of each rank", x, want)
			}
		}
		if n := all["mscclpp_call_duration_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); n != uint64(2*want) {
			t.Errorf("%d calls in the histogram, expected %v", n, 2*want)
		}
	}
	call(r, 3)
	counted(3)
	call(r, 1)
	s.meter.poll()
	for i, b := range r.boards { // they start again, in the same regions
		b.Close()
		if err := r.all[i].Close(); err != nil {
			t.Fatal(err)
		}
		r.now.Add(1e6)
		r.all[i] = r.open(t, i, 2)
		r.boards[i] = r.all[i].Board("world", i, 2)
	}
	call(r, 2)
	counted(6)
	leave()
	counted(6)
	second := playRanks(t, 2)
	defer s.Follow(second.memory)()
	call(second, 4)
	counted(10)
	if n := len(scrape(t, s, text)["mscclpp_rank_state"].GetMetric()); n != 2 {
		t.Errorf("states of %d ranks, expected 2", n)
	}
}
