package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// numbers are the metrics of the ranks of one launcher. Calls have labels of what they do and not of their rank: with both
// there would be thousands of histograms on a host with many ranks.
type numbers struct {
	job   *prometheus.GaugeVec
	state *prometheus.GaugeVec
	age   *prometheus.GaugeVec

	rankCalls *prometheus.CounterVec
	rankBytes *prometheus.CounterVec
	took      *prometheus.HistogramVec
	bytes     *prometheus.CounterVec
	waited    *prometheus.CounterVec
	failures  *prometheus.CounterVec

	queue    *prometheus.HistogramVec
	triggers *prometheus.HistogramVec
	moved    *prometheus.CounterVec
	lost     *prometheus.CounterVec
}

// classes are the classes of sizes: a call belongs to the first one that has room for its bytes.
var classes = []struct {
	most uint64
	name string
}{
	{1 << 10, "1KiB"}, {16 << 10, "16KiB"}, {256 << 10, "256KiB"}, {4 << 20, "4MiB"}, {64 << 20, "64MiB"},
}

func classOf(bytes uint64) string {
	for _, c := range classes {
		if bytes <= c.most {
			return c.name
		}
	}
	return "larger"
}

// durations are the bounds of classic histograms of times, from 1 µs to 17 s. Native ones need none.
var durations = prometheus.ExponentialBuckets(1e-6, 4, 13)

func newNumbers(r prometheus.Registerer) *numbers {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "mscclpp", Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "mscclpp", Name: name, Help: help}, labels)
		r.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "mscclpp", Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}, labels)
		r.MustRegister(v)
		return v
	}
	return &numbers{
		job:   gauge("job_info", "The job of which ranks are here, its size and their host.", "id", "size", "host"),
		state: gauge("rank_state", "1 for the state in which a rank is.", "rank", "state"),
		age:   gauge("call_age_seconds", "For how long a rank has been in its oldest call, to a tenth of a second; 0 outside of calls.", "rank"),

		rankCalls: counter("rank_calls_total", "Calls that have ended.", "rank"),
		rankBytes: counter("rank_bytes_total", "Bytes of calls that have ended.", "rank"),
		took: histogram("call_duration_seconds", "Time of calls of the ranks of this host; on GPUs that of their launch.",
			durations, "collective", "size", "algorithm"),
		bytes:    counter("call_bytes_total", "Bytes of the same calls.", "collective", "size", "algorithm"),
		waited:   counter("wait_seconds_total", "Time in which a rank waited in calls for the peer that began them last, of the ranks of this host.", "rank", "peer"),
		failures: counter("failures_total", "Ranks that report the failure of the job, by the party that they name.", "rank", "culprit"),

		queue:    histogram("proxy_queue_depth", "Triggers in the queue of a proxy when it takes one.", prometheus.ExponentialBuckets(1, 2, 12), "rank"),
		triggers: histogram("proxy_trigger_duration_seconds", "Time in which a proxy performs a trigger.", durations, "rank"),
		moved:    counter("proxy_bytes_total", "Bytes of the puts of proxies.", "rank"),
		lost:     counter("records_lost_total", "Records that were overwritten before they were read; calls of these are missing in histograms.", "rank"),
	}
}
