package metrics

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// adapters reads the counters of the kernel for the ports of network adapters, each time that they are asked for. Drivers have different ones:
// a counter that a driver does not have is not there, since 0 would say that nothing was sent again.
type adapters struct {
	folder string // sysAdapters
	desc   *prometheus.Desc
}

// sysAdapters is where the kernel shows them.
const sysAdapters = "/sys/class/infiniband"

// retransmits are the counters of drivers for packets, or requests, that were sent again, and for their causes.
var retransmits = map[string]bool{
	"local_ack_timeout_err":  true, // mlx5: no acknowledgement came in time
	"packet_seq_err":         true, // mlx5: the peer has missed a packet
	"rnr_nak_retry_err":      true, // mlx5: the peer was not ready
	"roce_adp_retrans":       true, // mlx5: adaptive
	"completer_retry_err":    true, // rxe: requests that were sent again
	"rcvd_seq_err":           true, // rxe: the peer has missed a packet
	"rcvd_rnr_err":           true, // rxe: the peer was not ready
	"retry_exceeded_err":     true, // rxe: the end of it
	"retry_rnr_exceeded_err": true,
	"to_retransmits":         true, // bnxt_re: no acknowledgement came in time
	"seq_err_naks_rcvd":      true, // bnxt_re: the peer has missed a packet
	"rnr_naks_rcvd":          true, // bnxt_re: the peer was not ready
	"retrans_pkts":           true, // efa
	"retrans_timeout_events": true, // efa
	"tcpRetransSegs":         true,
}

func newAdapters(folder string) *adapters {
	return &adapters{folder, prometheus.NewDesc("mscclpp_adapter_retransmits_total",
		"Packets and requests that network adapters of this host have sent again, and their causes, as the kernel counts them since the adapter is there; of all programs.",
		[]string{"adapter", "port", "counter"}, nil)}
}

// Describe implements prometheus.Collector.
func (a *adapters) Describe(to chan<- *prometheus.Desc) { to <- a.desc }

// Collect implements prometheus.Collector.
func (a *adapters) Collect(to chan<- prometheus.Metric) {
	files, _ := filepath.Glob(filepath.Join(a.folder, "*", "ports", "*", "hw_counters", "*")) // the form is right
	for _, file := range files {
		name := filepath.Base(file)
		if !retransmits[name] {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the adapter is gone
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			continue
		}
		port := filepath.Dir(filepath.Dir(file))
		adapter := filepath.Base(filepath.Dir(filepath.Dir(port)))
		to <- prometheus.MustNewConstMetric(a.desc, prometheus.CounterValue, float64(n), adapter, filepath.Base(port), name)
	}
}
