package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// In a trace each put over a network leads to the wait that it ends, and what proxies do is there, whoever drives the sockets. A link
// that is slower than the others is named by the trace, the report and the status.
func TestPutsLeadToWaits(t *testing.T) {
	const calls = 30
	for _, drive := range []string{"rank", "plugin"} {
		t.Run("driven by the "+drive, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "job.perfetto")
			c := observed(t, fmt.Sprint("calls=", calls, " slow=1"), layouts["2x2 over shm and tcp"],
				"--trace", file, "--set", "observe.report=true", "--set", "transport.tcp.drive="+drive)
			code, _, errs := runs(c)
			if code != 0 {
				t.Fatalf("code %d: %s", code, errs)
			}
			trace, err := traces.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range trace.Ranks {
				peer := (r.Rank + 2) % 4
				puts, waits := 0, 0
				for _, p := range r.Puts {
					if p.Comm == "world" && p.Bytes >= 4000 {
						puts++
						if p.Peer != peer || p.Transport != "tcp" || !p.Signal || p.Got == 0 {
							t.Errorf("rank %d: %+v: expected a put over tcp to rank %d, which waits for it", r.Rank, p, peer)
						}
					}
				}
				for _, w := range r.Waits {
					if w.Comm == "world" && w.Bytes >= 4000 {
						waits++
					}
					if w.Sent == 0 || w.Peer != peer || w.Begin > w.End {
						t.Errorf("rank %d: %+v: expected a wait for rank %d", r.Rank, w, peer)
					}
				}
				if puts != calls || waits != calls {
					t.Errorf("rank %d: %d puts and %d waits, expected %d", r.Rank, puts, waits, calls)
				}
				sent, done := uint64(0), 0
				for _, x := range r.Triggers {
					if strings.HasPrefix(x.Writer, "tcp proxy ") {
						sent += x.Bytes
					}
				}
				for _, x := range r.Transfers {
					if strings.HasPrefix(x.Writer, "tcp proxy ") && x.Peer == peer {
						done += x.Requests
					}
				}
				if proxied := drive == "plugin"; (sent >= calls*4000) != proxied || (done > 0) != proxied {
					t.Errorf("rank %d: proxies of tcp took %d bytes, and %d requests were complete", r.Rank, sent, done)
				}
			}
			code, out, errs2 := runs(command(t, "trace", file))
			for _, said := range []string{out, errs} {
				if !strings.Contains(said, "the link from rank 1 to rank 3 over tcp is slower than its kind") {
					t.Errorf("code %d: %s%s: expected the link from rank 1 to rank 3", code, said, errs2)
				}
			}
			perfettoAccepts(t, file)
		})
	}
	t.Run("status", func(t *testing.T) {
		t.Parallel()
		job, end := started(t, observed(t, "calls=0 slow=1", layouts["2x2 over shm and tcp"], "--set", "observe.report=true"))
		defer end()
		for patience := patient(t, "no link is named"); ; patience() {
			code, out, errs := runs(command(t, "status", job))
			if code != 0 {
				t.Fatalf("code %d: %s%s", code, out, errs)
			}
			if strings.Contains(out, "the link from rank 1 to rank 3 over tcp is slower than its kind") {
				return
			}
		}
	})
}

// perfettoAccepts has the checker look at a trace, where Perfetto's definitions are to be had.
func perfettoAccepts(t *testing.T, file string, how ...string) {
	t.Helper()
	out, err := exec.Command("../../scripts/perfetto.sh", append(how, file)...).CombinedOutput()
	switch {
	case err == nil:
	case strings.Contains(string(out), "perfetto: NOT run"):
		t.Logf("not checked: %s", out)
	default:
		t.Errorf("%s: %v: %s", file, err, out)
	}
}
