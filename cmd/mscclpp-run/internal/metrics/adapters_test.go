package metrics

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// sentAgain has the series of a folder as adapter, port, counter.
func sentAgain(t *testing.T, folder string) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newAdapters(folder))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			all[strings.Join([]string{f.GetName(), labels["adapter"], labels["port"], labels["counter"]}, " ")] = m.GetCounter().GetValue()
		}
	}
	return all
}

func TestRetransmitsOfAdapters(t *testing.T) {
	dir := t.TempDir()
	for path, content := range map[string]string{
		"mlx5_0/ports/1/hw_counters/local_ack_timeout_err": "17\n",
		"mlx5_0/ports/1/hw_counters/packet_seq_err":        "0\n",
		"mlx5_0/ports/1/hw_counters/lifespan":              "10\n",
		"mlx5_0/ports/2/hw_counters/packet_seq_err":        "3\n",
		"rxe0/ports/1/hw_counters/completer_retry_err":     "5\n",
		"rxe0/ports/1/hw_counters/rcvd_seq_err":            "no number\n",
		"old0/ports/1/state":                               "4: ACTIVE\n",
	} {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const name = "mscclpp_adapter_retransmits_total "
	want := map[string]float64{
		name + "mlx5_0 1 local_ack_timeout_err": 17, name + "mlx5_0 1 packet_seq_err": 0, name + "mlx5_0 2 packet_seq_err": 3, name + "rxe0 1 completer_retry_err": 5,
	}
	if got := sentAgain(t, dir); !maps.Equal(got, want) {
		t.Errorf("%v: expected %v", got, want)
	}
	if got := sentAgain(t, filepath.Join(dir, "none")); len(got) != 0 {
		t.Errorf("%v: expected nothing of a host without adapters", got)
	}
}

// The guest of scripts/rdma-test.sh has one adapter, rxe0.
func TestRetransmitsOfThisHost(t *testing.T) {
	required := os.Getenv("RDMA_REQUIRED") != ""
	if list, _ := filepath.Glob(sysAdapters + "/*"); len(list) == 0 && !required {
		t.Skip("needs an RDMA adapter")
	}
	got := sentAgain(t, sysAdapters)
	t.Log(got)
	if _, found := got["mscclpp_adapter_retransmits_total rxe0 1 completer_retry_err"]; required && !found {
		t.Errorf("%v: expected requests that rxe0 has sent again", slices.Sorted(maps.Keys(got)))
	}
}
