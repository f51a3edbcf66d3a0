package tcp_test

import (
	"encoding/json"
	"testing"
	"time"
)

// Two ranks reduce over streams that they drive: as a whole and in halves, which may not be
// alike, in pieces and in stripes, of wide and of narrow types, in place and not.
func TestPairReduces(t *testing.T) {
	dir := programs(t)
	for name, c := range map[string]struct {
		args, env []string
		sizes     int
	}{
		"sizes":    {args: []string{"--bytes", "64K:16M", "--factor", "4"}, sizes: 5},
		"odd":      {args: []string{"--bytes", "3000012", "--in-place"}, sizes: 1},
		"stripes":  {args: []string{"--bytes", "5M", "--dtype", "bf16"}, env: []string{"MSCCLPP_TRANSPORT__TCP__STRIPE=65536"}, sizes: 1},
		"in place": {args: []string{"--bytes", "1M:4M", "--in-place", "--op", "max", "--dtype", "i32"}, sizes: 3},
		"one byte": {args: []string{"--bytes", "1000003", "--dtype", "u8"}, sizes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			hosts := bench(t, dir, c.env, append([]string{"--iters", "3", "--check", "--format", "json"}, c.args...)...)
			for i, h := range hosts {
				select {
				case <-h.ended:
				case <-time.After(2 * time.Minute):
					t.Fatalf("host %d has not ended after two minutes", i)
				}
				if h.err != nil {
					t.Errorf("host %d: %v\n%s", i, h.err, h.errs.String())
				}
			}
			rows := 0
			for lines := json.NewDecoder(&hosts[0].out); lines.More(); rows++ {
				var row struct {
					Bytes     int64
					Errors    *int64
					Algorithm string
				}
				if err := lines.Decode(&row); err != nil {
					t.Fatal(err)
				}
				if row.Errors == nil || *row.Errors != 0 || row.Algorithm != "ports" {
					t.Errorf("%+v: expected no errors of algorithm ports", row)
				}
			}
			if rows != c.sizes {
				t.Errorf("%d results: expected %d", rows, c.sizes)
			}
		})
	}
}
