package tcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
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
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
				t.Fatal(err)
			}
			port := reserved(t)
			var hosts [2]*exec.Cmd
			var out, errs [2]bytes.Buffer
			for i := range hosts {
				args := append([]string{"-N", "2", "--node-rank", strconv.Itoa(i), "--master-addr", "127.0.0.1", "--master-port", strconv.Itoa(port),
					"--transports", "tcp", "-n", "1", "bench", "allreduce", "--iters", "3", "--check", "--format", "json"}, c.args...)
				hosts[i] = exec.Command(filepath.Join(dir, "mscclpp-run"), args...)
				hosts[i].Env = append(append(os.Environ(), "MSCCLPP_SECRET_FILE="+secret, fmt.Sprintf("MSCCLPP_BOOTSTRAP__HOST_ID=host-%d", i)), c.env...)
				hosts[i].Stdout, hosts[i].Stderr = &out[i], &errs[i]
				if err := hosts[i].Start(); err != nil {
					t.Fatal(err)
				}
			}
			for i, h := range hosts {
				if err := h.Wait(); err != nil {
					t.Errorf("host %d: %v\n%s", i, err, errs[i].String())
				}
			}
			rows := 0
			for lines := json.NewDecoder(&out[0]); lines.More(); rows++ {
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
