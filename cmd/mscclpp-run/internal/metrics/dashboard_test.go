package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The dashboard has unique panels, and asks for metrics and labels that there are.
func TestDashboardAsksForMetricsThatThereAre(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(b, &board); err != nil || board.Title == "" || board.UID == "" || len(board.Panels) == 0 {
		t.Fatalf("%v: %+v: expected a dashboard", err, board)
	}
	r := prometheus.NewRegistry()
	newNumbers(r)
	r.MustRegister(newAdapters(sysAdapters))
	labels := labelsOf(r)
	seen := map[int]bool{}
	names := regexp.MustCompile(`mscclpp_[a-z_]+`)
	by := regexp.MustCompile(`by \(([a-z, ]+)\)`)
	for _, p := range board.Panels {
		if seen[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %d, %s: its number is taken, or it has no query", p.ID, p.Title)
		}
		seen[p.ID] = true
		for _, x := range p.Targets {
			of, known := labels[names.FindString(x.Expr)]
			if !known {
				t.Errorf("%s: %s: no such metric", p.Title, x.Expr)
			}
			if m := by.FindStringSubmatch(x.Expr); m != nil {
				for _, l := range regexp.MustCompile(`[a-z]+`).FindAllString(m[1], -1) {
					if !of[l] {
						t.Errorf("%s: %s: no label %s", p.Title, x.Expr, l)
					}
				}
			}
		}
	}
}

// labelsOf are the series of all metrics, and their labels.
func labelsOf(r *prometheus.Registry) map[string]map[string]bool {
	what := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	ch := make(chan *prometheus.Desc, 100)
	r.Describe(ch)
	close(ch)
	all := map[string]map[string]bool{}
	for d := range ch {
		m := what.FindStringSubmatch(d.String())
		labels := map[string]bool{"instance": true, "le": true}
		for _, l := range regexp.MustCompile(`[a-z]+`).FindAllString(m[2], -1) {
			labels[l] = true
		}
		for _, suffix := range []string{"", "_bucket", "_count"} {
			all[m[1]+suffix] = labels
		}
	}
	return all
}
