package verify_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// reasons has parts of what is said about plans of testdata, by file.
var reasons = map[string][]string{
	"hang/allgather_both_wait.json":                  {"rank 0, block 0, operation 0 (wait) waits on memory channel 0 for signal 1 of rank 1, of which 0 came", "rank 0, block 0 waits already: a circle"},
	"hang/allgather_packets_elsewhere.json":          {"operation 1 (upkt) waits for packets in chunk 1 of scratch memory, and no block that still runs sends packets there"},
	"hang/alltoall_unreleased.json":                  {"waits for semaphore 0, which began at 0 and was released 0 times"},
	"hang/barriers_crossed.json":                     {"rank 0, block 0, operation 0 (barrier) waits for block 1 at barrier 0", "circle"},
	"hang/channel_twice_in_a_wait.json":              {"for signal 3 of rank 1, of which 2 came"},
	"hang/semaphore_second_launch.json":              {"launch 2: rank 0, block 0, operation 0 (sem_acquire)"},
	"hang/sendrecv_to_itself.json":                   {"waits on port channel 1 for signal 1 of rank 0, of which 0 came, and no block that still runs signals that channel"},
	"race/allreduce_packets_twice.json":              {"(ppkt) writes chunk 0 of the scratch memory of rank", "nothing orders the two"},
	"race/alltoall_no_nop_after_wait.json":           {"(put) writes chunk 0 of the scratch memory of rank 0", "(copy) reads it: nothing orders the two"},
	"race/alltoall_relaxed.json":                     {"order them in execution alone"},
	"race/copy_onto_itself.json":                     {"no nop joins the threads of the block between the two"},
	"race/sendrecv_source_reused.json":               {"the engine of port channel 0 of rank", "operation 3 (pws), reads chunk 0 of the input of rank"},
	"refused/no_legal_size.json":                     {"no size of 16 to 40 bytes is a multiple of 3 chunks of 16 bytes"},
	"right/allreduce_read_apart.json":                {"the verdict is for calls with separate buffers: in place it is race: rank"},
	"right/allgather_relaxed_end.json":               {"the end of the launch, or a fence, has to make the first store visible"},
	"right-once/allgather_packet_ring_one_half.json": {"of launch 1 reads chunk", "of launch 2 writes it"},
	"right-once/sendrecv_port.json":                  {"the program of rank 0, after launch 1, writes it"},
	"wrong/allgather_own_part.json":                  {"of the output of rank 0 is chunk 0 of the input of rank 1; expected chunk 0 of the input of rank 0"},
	"wrong/allreduce_twice.json":                     {"chunk 0 of the input of rank 1 2 times"},
}

// TestVerdicts checks the plans of testdata: the folder is the verdict.
func TestVerdicts(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d plans, %v", len(files), err)
	}
	said := 0
	for _, file := range files {
		folder := filepath.Base(filepath.Dir(file))
		name := folder + "/" + filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			got := verify.File(file)
			if want := verify.Verdict(strings.ReplaceAll(folder, "-", " ")); got.Verdict != want {
				t.Errorf("got %s: %s, expected %s", got.Verdict, got.Reason, want)
			}
			if got.File != file || got.Reason == "" {
				t.Errorf("got %+v, expected the file and a reason", got)
			}
			text := strings.Join(append([]string{got.Reason}, got.Notes...), "\n")
			for _, part := range reasons[name] {
				if !strings.Contains(text, part) {
					t.Errorf("got %q, expected in it %q", text, part)
				}
			}
			if reasons[name] != nil {
				said++
			}
		})
	}
	if said != len(reasons) {
		t.Errorf("%d plans of which reasons are expected, of %d", said, len(reasons))
	}
}

// TestExtremes checks plans with the largest numbers that the format has.
func TestExtremes(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*schema.Plan)
		want   verify.Verdict
	}{
		{"alignment", func(p *schema.Plan) { p.Alignment = math.MaxInt32 }, verify.Refused}, // in units of 48 bytes
		{"page", func(p *schema.Plan) { p.Alignment = 4096 }, verify.Right},
		{"smallest message", func(p *schema.Plan) { p.MinSize = math.MaxUint64 }, verify.Refused},
		{"smallest message in bytes", func(p *schema.Plan) { p.MinSize, p.Alignment = math.MaxUint64, 1 }, verify.Refused},
		{"message of a terabyte", func(p *schema.Plan) { p.MinSize = 1 << 40 }, verify.Refused},
		{"message of 64 GiB less a byte", func(p *schema.Plan) { p.MinSize = 1<<36 - 1 }, verify.Refused},
		{"message of a gigabyte", func(p *schema.Plan) { p.MinSize = 1 << 30 }, verify.Refused}, // in units of 48 bytes
		{"message of a kilobyte", func(p *schema.Plan) { p.MinSize = 1 << 10 }, verify.Right},
		{"unit", func(p *schema.Plan) { each(p, func(i *schema.Iteration) { i.Unit = 1 << 62 }) }, verify.Right},
		{"unit of a byte", func(p *schema.Plan) { each(p, func(i *schema.Iteration) { i.Unit = 1 }) }, verify.Right},
		{"chunks of a pipeline", func(p *schema.Plan) { each(p, func(i *schema.Iteration) { i.NumChunks = math.MaxInt32 }) }, verify.Refused},
		{"no chunks of a pipeline", func(p *schema.Plan) { each(p, func(i *schema.Iteration) { i.NumChunks = 0 }) }, verify.Wrong},
		{"scratch memory", func(p *schema.Plan) { p.GPUs[0].ScratchChunks = math.MaxInt32 }, verify.Refused},
	} {
		p, err := schema.ReadFile("testdata/right/pipeline.json")
		if err != nil {
			t.Fatal(err)
		}
		x.change(p)
		if got := verify.Plan(p); got.Verdict != x.want {
			t.Errorf("%s: got %s: %s, expected %s", x.name, got.Verdict, got.Reason, x.want)
		}
	}
}

// each calls change for the pipelines of a plan.
func each(p *schema.Plan, change func(*schema.Iteration)) {
	for r := range p.GPUs {
		for b := range p.GPUs[r].Blocks {
			for i := range p.GPUs[r].Blocks[b].Ops {
				if it := p.GPUs[r].Blocks[b].Ops[i].Iter; it != nil {
					change(it)
				}
			}
		}
	}
}
