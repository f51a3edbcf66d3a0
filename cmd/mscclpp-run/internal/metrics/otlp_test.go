package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// receiver is a collector of OpenTelemetry: it keeps the newest of each metric.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	metrics map[string]*otlp.Metric
	about   map[string]string // the resource
	wrong   []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{metrics: map[string]*otlp.Metric{}, about: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if q.URL.Path != "/v1/metrics" || q.Method != http.MethodPost || q.Header.Get("Authorization") != "Bearer me" {
			r.wrong = append(r.wrong, q.Method+" "+q.URL.Path+" "+q.Header.Get("Authorization"))
		}
		if err := r.take(q); err != nil {
			r.wrong = append(r.wrong, err.Error())
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(q *http.Request) error {
	var body io.Reader = q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			return err
		}
		body = z
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var x collector.ExportMetricsServiceRequest
	if err := proto.Unmarshal(b, &x); err != nil {
		return err
	}
	for _, m := range x.GetResourceMetrics() {
		for _, a := range m.GetResource().GetAttributes() {
			r.about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, s := range m.GetScopeMetrics() {
			for _, f := range s.GetMetrics() {
				r.metrics[f.GetName()] = f
			}
		}
	}
	return nil
}

// A collector of OpenTelemetry gets what Prometheus gets, at the latest at the end.
func TestNumbersAreExported(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer me")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a")
	t.Setenv("OTEL_SERVICE_NAME", "training")
	to := newReceiver(t)
	r := playRanks(t, 2)
	s, err := Serve("0", to.URL)
	if err != nil {
		t.Fatal(err)
	}
	leave := s.Follow(r.memory)
	if err := r.memory.Switch(true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, b := range r.boards {
			b.Begin(b.Clock(), collective.AllReduce, 4096, "ring", 0)
		}
		r.now.Add(2e6)
		for _, b := range r.boards {
			b.End()
		}
	}
	scraped := scrape(t, s, text)
	leave()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if len(to.wrong) > 0 {
		t.Errorf("%q", to.wrong)
	}
	// Without its host and the process two launchers would add to one series.
	host, err := os.Hostname()
	if id := to.about["service.instance.id"]; err != nil || to.about["service.name"] != "training" || to.about["host.name"] != host || to.about["team"] != "a" ||
		!regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("resource %v: expected the service of the environment, host %s and an instance", to.about, host)
	}
	for name := range scraped {
		if to.metrics[name] == nil {
			t.Errorf("%s is not exported", name)
		}
	}
	calls := to.metrics["mscclpp_rank_calls_total"].GetSum()
	if points := calls.GetDataPoints(); len(points) != 2 || points[0].GetAsDouble() != 3 || !calls.GetIsMonotonic() {
		t.Errorf("calls: %v: expected 3 of each rank", calls)
	}
	took := to.metrics["mscclpp_call_duration_seconds"]
	count := uint64(0)
	for _, p := range took.GetHistogram().GetDataPoints() {
		count += p.GetCount()
	}
	for _, p := range took.GetExponentialHistogram().GetDataPoints() {
		count += p.GetCount()
	}
	if count != 6 {
		t.Errorf("%d calls in the histogram: %v: expected 6", count, took)
	}
}

// A collector that is not there does not stop the job: its end says so. Other addresses are refused at once.
func TestCollectorsThatAreNotThere(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	url := gone.URL
	gone.Close()
	s, err := Serve("", url)
	if err != nil {
		t.Fatal(err)
	}
	if s.Address() != "" {
		t.Errorf("it answers at %s", s.Address())
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "observe.otlp: ") {
		t.Errorf("%v: expected that nothing was exported", err)
	}
	for _, address := range []string{"here", "4318", "ftp://host", "http://", "http://a b"} {
		if s, err := Serve("0", address); err == nil || !strings.Contains(err.Error(), "observe.otlp: invalid: ") {
			t.Errorf("%q: %v: expected that it is refused", address, err)
			_ = s.Close()
		}
	}
}
