package nccl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownPlan is an all-reduce of two ranks for 64 to 4096 bytes that is wrong on purpose, so that results show who has performed a call: each rank
// gets its own numbers.
func ownPlan() string {
	gpu := func(rank string) string {
		return `{"id":` + rank + `,"input_chunks":1,"output_chunks":1,"scratch_chunks":0,"threadblocks":[{"id":0,"ops":[{"name":"copy",
			"src_buff":[{"type":"i","index":0,"size":1}],"dst_buff":[{"type":"o","index":0,"size":1}]}],"channels":[],"remote_buffer_refs":[]}],
			"channels":[],"remote_buffers":[],"semaphores":[]}`
	}
	return `{"name":"own","collective":"allreduce","protocol":"Simple","inplace":false,"reuse_resources":false,"gpus":[` + gpu("0") + "," + gpu("1") + `],
		"num_threads_per_block":1024,"use_double_scratch_buffer":false,"buffer_alignment":16,"min_message_size":64,"max_message_size":4096}`
}

// Programs of NCCL use plans by the configuration alone: those that it lists, for the calls that they serve, unless a row of the table comes
// before. One that is not right is refused, unless the configuration says otherwise.
func TestPlans(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	plan := filepath.Join(folder, "own.json")
	right, err := filepath.Abs("../plan/verify/testdata/right/allreduce_packets.json")
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) string {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write(plan, ownPlan())
	program := compile(t, "plans.c")
	for name, c := range map[string]struct {
		config   string
		from, to string // where the plan performs calls
	}{
		"none":     {"{}\n", "1", "0"},
		"chosen":   {"collectives:\n  plans:\n    - {path: " + plan + ", unverified: true}\n", "64", "4096"},
		"a folder": {"collectives:\n  plans:\n    - {path: " + folder + ", unverified: true}\n", "64", "4096"},
		"a row before": {"collectives:\n  plans:\n    - {path: " + plan + ", unverified: true}\n" +
			"  table:\n    - {collective: allreduce, max_bytes: 1K, algorithm: allpair_ll8}\n", "1025", "4096"},
		"a right one before": {"collectives:\n  plans:\n    - {path: " + right + "}\n    - {path: " + plan + ", unverified: true}\n", "1", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := write(filepath.Join(t.TempDir(), "config.yaml"), c.config)
			ranksOf(t, program, 2, environ(t, "MSCCLPP_CONFIG="+config, "PLAN_FROM="+c.from, "PLAN_TO="+c.to))
		})
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		config := write(filepath.Join(t.TempDir(), "config.yaml"), "collectives:\n  plans:\n    - {path: "+plan+"}\n")
		said := joins(t, nil, []string{"MSCCLPP_CONFIG=" + config})
		if !strings.Contains(said[0], "own.json: the plan is not right, but wrong") || strings.HasPrefix(said[0], "0 ") {
			t.Errorf("it prints %q: expected an error that says why the plan is refused", said[0])
		}
	})
}
