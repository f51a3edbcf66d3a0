package verify_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// TestTrace checks the events of all plans: each is later than what it follows, and than what its thread did before.
func TestTrace(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d plans, %v", len(files), err)
	}
	for _, file := range files {
		p, err := schema.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		events, err := verify.Trace(p)
		hangs := filepath.Base(filepath.Dir(file)) == "hang" && filepath.Base(file) != "semaphore_second_launch.json"
		if refused := filepath.Base(filepath.Dir(file)) == "refused"; (err != nil) != (hangs || refused) || err != nil && !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%s: %v", file, err)
		}
		type lane struct{ rank, block, port int }
		next := map[lane]int{}
		for i, e := range events {
			at := lane{e.Rank, e.Block, e.Port}
			if e.Port >= 0 {
				at.block = 0
			}
			if e.Ready > e.Time || e.Time < next[at] {
				t.Errorf("%s: event %d is at %d, ready at %d, and its thread is at %d", file, i, e.Time, e.Ready, next[at])
			}
			next[at] = e.Time + 1
			for _, k := range e.After {
				if before := events[k]; before.Time >= e.Time && (before.Name != schema.Pwsf || e.Port < 0) {
					t.Errorf("%s: event %d is at %d, and follows event %d at %d", file, i, e.Time, k, before.Time)
				}
			}
		}
	}
}

// TestTraceFollows checks which events others follow: signals, packets, releases, and requests to engines.
func TestTraceFollows(t *testing.T) {
	for _, x := range []struct {
		file         string
		event, after schema.OpName
		other        bool // rank
	}{
		{"right/alltoall_scratch.json", schema.Wait, schema.Signal, true},
		{"right/alltoall_scratch.json", schema.RlxWait, schema.RlxSignal, true},
		{"right/alltoall_semaphore.json", schema.SemAcquire, schema.SemRelease, false},
		{"right/allgather_packet_ring.json", schema.UnpackPkt, schema.PutPkt, true},
		{"right/allgather_packet_ring.json", schema.UnpackPkt, schema.ReadPutPkt, true},
		{"right/sendrecv_port_flushed.json", schema.Wait, schema.Pwsf, true},
		{"right/sendrecv_port_flushed.json", schema.Pwsf, schema.Pwsf, false},
		{"right/sendrecv_port_flush.json", schema.Flush, schema.Pws, false},
	} {
		p, err := schema.ReadFile("testdata/" + x.file)
		if err != nil {
			t.Fatal(err)
		}
		events, err := verify.Trace(p)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range events {
			for _, k := range e.After {
				found = found || e.Name == x.event && events[k].Name == x.after && (events[k].Rank != e.Rank) == x.other
			}
		}
		if !found {
			t.Errorf("%s: no %s follows a %s", x.file, x.event, x.after)
		}
	}
}
