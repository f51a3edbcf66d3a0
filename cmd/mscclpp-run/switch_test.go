package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// casesOverSwitch are those that CI executes: each kernel over a window, the operations that each has, sizes below and above a
// step of packets, odd ones and none, in place, registered, off by an element.
var casesOverSwitch = []string{
	"allreduce,f32,sum,65536,in-place,registered,offset=1,algorithm=switch",
	"allreduce,f16,avg,8334,algorithm=switch",
	"allreduce,bf16,premulsum,500,in-place,algorithm=switch",
	"allreduce,f64,sum,257,registered,algorithm=switch",
	"allreduce,u64,sum,4167,offset=1,algorithm=switch",
	"allreduce,i32,avg,0,algorithm=switch",
	"allreduce,f32,sum,65536,registered,algorithm=switch_zerocopy",
	"allreduce,bf16,avg,8335,in-place,registered,algorithm=switch_zerocopy",
	"allreduce,u64,premulsum,257,registered,offset=1,algorithm=switch_zerocopy",
	"reducescatter,f16,sum,4096,registered,algorithm=switch_zerocopy",
	"allgather,i8,1024,registered,algorithm=switch_zerocopy",
	"allreduce,i32,max,65536,in-place,registered,offset=1,algorithm=switch_minmax",
	"allreduce,i64,min,4167,in-place,algorithm=switch_minmax",
	"allreduce,u32,min,250,algorithm=switch_minmax",
	"allreduce,u64,max,1,algorithm=switch_minmax",
	"allreduce,f16,max,2049,in-place,offset=1,algorithm=switch_minmax",
	"allreduce,bf16,min,30,registered,algorithm=switch_minmax",
	"allreduce,f32,min,15,algorithm=switch_packets",
	"allreduce,f16,prod,1,in-place,registered,offset=1,algorithm=switch_packets",
	"allreduce,bf16,premulsum,500,in-place,registered,offset=1,algorithm=switch_packets",
	"allreduce,f64,max,513,in-place,registered,offset=1,algorithm=switch_packets",
	"allreduce,i64,sum,32768,algorithm=switch_packets",
	"allreduce,i32,avg,0,algorithm=switch_packets",
	"reducescatter,f32,sum,8334,registered,algorithm=switch",
	"reducescatter,bf16,avg,257,in-place,algorithm=switch",
	"reducescatter,i64,premulsum,0,offset=1,algorithm=switch",
	"reducescatter,f64,sum,1,algorithm=switch",
	"allgather,i8,1,algorithm=switch",
	"allgather,f64,257,registered,algorithm=switch",
	"allgather,f16,65536,in-place,offset=1,algorithm=switch",
	"broadcast,e4m3b15,1000,root=1,algorithm=switch",
	"broadcast,u32,8334,in-place,registered,root=1,offset=1,algorithm=switch",
	"broadcast,f16,1,in-place,algorithm=switch",
}

// overSwitch is a check of so many ranks over the switch of emulated GPUs that execute the committed PTX.
func overSwitch(t *testing.T, ranks int, cases []string, env ...string) *exec.Cmd {
	t.Helper()
	var gpus []string
	for i := range ranks {
		gpus = append(gpus, strconv.Itoa(i))
	}
	args := []string{"-n", strconv.Itoa(ranks), "--set", "plugins.embed=nvls,cudaipc", "--transports", "nvls,cudaipc", "check", "--device", "cuda"}
	for _, c := range cases {
		args = append(args, "--case", c)
	}
	c := command(t, args...)
	c.Env = append(append(c.Env, cuda.EnvLibrary+"="+emulated.Build(t), emulated.EnvRun+"=ptx", emulated.EnvGPUs+"="+strconv.Itoa(ranks), emulated.EnvMemory+"="+strconv.Itoa(ranks<<27),
		"CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","), "NCCL_NVLS_ENABLE=1"), env...)
	return c
}

// A job over the switch passes check, on emulated GPUs that execute the committed PTX. A real switch is left alone. INTERPRET_RANKS, for
// example "2 4 8", asks for other numbers of ranks.
func TestCheckOverTheSwitch(t *testing.T) {
	for _, c := range casesOverSwitch {
		t.Log(c)
	}
	for word := range strings.FieldsSeq(cmp.Or(os.Getenv("INTERPRET_RANKS"), "2")) {
		t.Run(word, func(t *testing.T) {
			ranks, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := runs(overSwitch(t, ranks, casesOverSwitch))
			if want := fmt.Sprintf("%d passed, 0 failed", len(casesOverSwitch)); code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("exit code %d, %s%s: expected %q", code, stdout, stderr, want)
			}
		})
	}
	// Without multicast there are no such algorithms.
	if code, stdout, stderr := runs(overSwitch(t, 2, casesOverSwitch[:1], "NCCL_NVLS_ENABLE=0")); code == 0 || !strings.Contains(stdout, "switched off by NCCL_NVLS_ENABLE=0") {
		t.Errorf("without multicast: exit code %d, %s%s", code, stdout, stderr)
	}
}

// A rank that dies while registered memory becomes a part of the window ends the job, which blames it, and waits for nothing.
func TestDeathWhileMemoryIsBound(t *testing.T) {
	registered := "allreduce,f32,sum,65536,registered,algorithm=switch_zerocopy"
	for _, fault := range []string{"cuMulticastBindMem@1+1:die", "cuMulticastBindMem@0+1:die"} {
		t.Run(fault, func(t *testing.T) {
			dead := fault[len("cuMulticastBindMem@"):][:1]
			code, stdout, stderr := runs(overSwitch(t, 2, []string{registered}, emulated.EnvFaults+"="+fault))
			if code == 0 || !strings.Contains(stdout+stderr, "rank "+dead) || !strings.Contains(stdout+stderr, "killed") {
				t.Errorf("exit code %d, %s%s: expected a failure by the death of rank %s", code, stdout, stderr, dead)
			}
		})
	}
}
