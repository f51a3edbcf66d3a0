package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/internal/gfx/gpus"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// onHIP is the program on AMD's GPUs, which are emulated: images for the CPU stand for the code objects of some types.
func onHIP(t *testing.T, types ...string) func(args ...string) *exec.Cmd {
	t.Helper()
	return onHIPWith(t, runtime.Tree("../..", types...)...)
}

// onHIPWith is onHIP with some code objects.
func onHIPWith(t *testing.T, objects ...emulated.Source) func(args ...string) *exec.Cmd {
	t.Helper()
	library, _, err := runtime.Libraries(t.Context())
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no emulated runtime: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	images := emulated.Images(t, objects...)
	dir := t.TempDir()
	for _, name := range []string{"xgmi", "tcp"} {
		if err := os.Rename(plugin(t, name), filepath.Join(dir, plugins.FilePrefix+name)); err != nil {
			t.Fatal(err)
		}
	}
	return func(args ...string) *exec.Cmd {
		c := command(t, append([]string{"--set", "plugins.dirs=" + dir}, args...)...)
		c.Env = append(c.Env, hip.EnvLibrary+"="+library, cuda.EnvLibrary+"=/nonexistent/libcuda.so.1", emulated.EnvImages+"="+images, emulated.EnvGPUs+"=8")
		return c
	}
}

// A check of collectives runs on AMD's GPUs, over xgmi, where it is asked for, and where they are what auto finds.
func TestCheckOnHIP(t *testing.T) {
	program := onHIP(t, "f32")
	cases := []string{
		"allreduce,f32,sum,4097,algorithm=allpair_ll8", "allreduce,f32,sum,33333,in-place,algorithm=twophase_chunk", "allreduce,f32,avg,16667,algorithm=twophase_ll8",
		"allreduce,f32,max,125,in-place,registered,offset=1,algorithm=zerocopy", "allreduce,f32,premulsum,1025,algorithm=oneshot_ll8",
		"allreduce,f32,sum,300001,algorithm=shares", "allreduce,f32,prod,9,in-place,algorithm=shares", "reducescatter,f32,avg,50001,in-place,algorithm=shares",
		"allreduce,f32,min,100000,registered,algorithm=copy", "allreduce,f32,prod,30000,algorithm=copy_staged",
		"reduce,f32,sum,300001,root=1,algorithm=shares_to_all", "reduce,f32,avg,9,in-place,algorithm=shares_to_all",
		"reducescatter,f32,sum,4167,algorithm=ll8", "reducescatter,f32,sum,16667,offset=1,algorithm=chunk", "reduce,f32,sum,2049,root=1,algorithm=chunk",
		"allgather,f32,15,algorithm=ll8", "allgather,f32,33333,algorithm=chunk", "alltoall,f32,2049,algorithm=chunk", "broadcast,f32,5000,root=1,algorithm=chunk",
	}
	for _, ranks := range []int{2, 4, 8} {
		checked(t, program, "hip", ranks, cases...)
	}
	checked(t, program, "auto", 2, cases[0])
	little := func(args ...string) *exec.Cmd {
		return program(append([]string{"--set", "comm.scratch=16MiB"}, args...)...)
	}
	checked(t, little, "hip", 4, "reduce,f32,max,3000001,root=3,algorithm=shares_to_all") // in pieces

	// GPUs without access to each other communicate through memory of the host.
	apart := func(args ...string) *exec.Cmd {
		c := program(append([]string{"--set", "gpu_memory=host"}, args...)...)
		c.Env = append(c.Env, emulated.EnvWithout+"=peer,ipc,vmm")
		return c
	}
	checked(t, apart, "hip", 2, cases...)
}

// Ranks on AMD's GPUs of two hosts communicate through memory of the host, for which their streams wait, and inside the hosts over
// xgmi.
func TestHostsOnHIP(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cases := []string{
		"allreduce,f32,sum,4097", "allreduce,f32,avg,300000,in-place", "allreduce,f32,max,1001,algorithm=ports", "reducescatter,f32,sum,16667", "reduce,f32,prod,2049,root=3",
		"allgather,f32,33333", "alltoall,f32,2049", "broadcast,f32,5000,root=1",
	}
	args := []string{"-n", "4", "--transports", "xgmi,tcp", "sh", "-c", `export MSCCLPP_BOOTSTRAP__HOST_ID=host-$((RANK/2)); exec "$0" "$@"`, self, "check", "--device", "hip"}
	for _, c := range cases {
		args = append(args, "--case", c)
	}
	code, out, errs := runs(onHIP(t, "f32")(args...))
	if want := fmt.Sprintf("%d passed, 0 failed", len(cases)); code != 0 || !strings.Contains(out, want) {
		t.Errorf("code %d, %s, %s: expected %s", code, out, errs, want)
	}
}

// Execution plans run on AMD's GPUs, with results that are right, at once and in graphs.
func TestPlansOnHIP(t *testing.T) {
	program := onHIPWith(t, append(runtime.Tree("../..", "f32"), runtime.Plans("../..", "f32"))...)
	for _, plan := range []string{"allreduce-2pa-packets", "allreduce-2pa-chunks", "allgather-chunks"} {
		file := filepath.Join(t.TempDir(), plan+".json")
		if code, out, errs := runs(command(t, "plan", "compile", plan, "--ranks", "2", "--output", file)); code != 0 {
			t.Fatalf("compile %s: code %d, %s%s", plan, code, out, errs)
		}
		code, out, errs := runs(program("-n", "2", "plan", "bench", file, "--device", "hip", "--check", "-b", "4K:16K", "--iters", "2", "--warmup", "1", "--graph", "0,2", "--format", "json"))
		if n := strings.Count(out, `"errors":0,`); code != 0 || n != 6 {
			t.Errorf("%s: code %d, %d right rows, %s, %s: expected 6", plan, code, n, out, errs)
		}
	}
}

// checked runs cases, and expects that they pass.
func checked(t *testing.T, program func(args ...string) *exec.Cmd, where string, ranks int, cases ...string) {
	t.Helper()
	args := []string{"-n", strconv.Itoa(ranks), "check", "--device", where}
	for _, c := range cases {
		args = append(args, "--case", c)
	}
	code, out, errs := runs(program(args...))
	if want := fmt.Sprintf("%d passed, 0 failed", len(cases)); code != 0 || !strings.Contains(out, want) {
		t.Errorf("%s, %d ranks: code %d, %s, %s: expected %s", where, ranks, code, out, errs, want)
	}
}

// Types that few programs reduce have kernels on AMD's GPUs, too: for small messages, for large ones and for registered memory.
// Those of u8 have no AVX-512 here, of which g++ 12 makes an instruction that it does not know.
func TestOtherTypesOnHIP(t *testing.T) {
	checked(t, onHIP(t, "u8", "e5m2"), "hip", 2, "allreduce,e5m2,sum,100", "allreduce,e5m2,min,5001,in-place", "allreduce,e5m2,prod,4097,registered", "reducescatter,e5m2,avg,33",
		"reduce,e5m2,max,5000,root=1", "allreduce,u8,max,4097", "reduce,u8,min,9001,root=1")
}

// hipRank makes this test program a rank of TestDeathOnHIP. Its value is the path of a pipe.
const hipRank = "HIP_TEST_RANK"

func init() {
	pipe := os.Getenv(hipRank)
	if pipe == "" || os.Getenv("RANK") == "" {
		return
	}
	os.Unsetenv(hipRank) // not for plugins
	if err := dieOnHIP(pipe); err != nil {
		fmt.Fprintln(os.Stderr, "ended:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// dieOnHIP reduces once. Then the kernel of rank 0 waits for rank 1, which is killed when rank 0 has opened the pipe. Those of other ranks may
// be enqueued before that or behind it.
func dieOnHIP(pipe string) error {
	ctx, cancel := context.WithTimeout(context.Background(), setUpBound)
	defer cancel()
	job, err := mscclpp.Init(ctx, mscclpp.WithDevice("hip"))
	if err != nil {
		return err
	}
	defer job.Close()
	d, ok := job.Device().(device.Engine)
	if !ok {
		return errors.New("a device without streams")
	}
	stream, err := d.NewStream()
	if err != nil {
		return err
	}
	m, err := job.World.Alloc(4096)
	if err != nil {
		return err
	}
	reduce := func() error {
		at := m.Addr()
		p := *(*unsafe.Pointer)(unsafe.Pointer(&at)) // memory of a device
		return job.AllReduce(p, p, 1000, mscclpp.Float32, mscclpp.Sum, &collectives.CallOptions{Stream: stream})
	}
	if err := errors.Join(reduce(), job.World.Settle(ctx, stream), job.Check()); err != nil {
		return fmt.Errorf("before anybody died: %w", err)
	}
	if job.Rank() == 1 {
		_, err := os.Open(pipe) // returns when the other rank has opened it, too
		return errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	err = reduce()
	if job.Rank() > 1 {
		return errors.Join(err, job.World.Settle(ctx, stream), job.Check())
	}
	if err != nil {
		return fmt.Errorf("before anybody died: %w", err)
	}
	if _, err := os.OpenFile(pipe, os.O_WRONLY, 0); err != nil {
		return err
	}
	return errors.Join(job.World.Settle(ctx, stream), job.Check())
}

// A killed rank ends the job on AMD's GPUs, also where these execute the code objects: the kernel that waits for it leaves, and the error of
// all other ranks names the dead one.
func TestDeathOnHIP(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := onHIP(t, "f32")
	for name, x := range map[string]struct {
		ranks   int
		program *exec.Cmd
	}{
		"images for processors, 2 ranks": {2, program("-n", "2", self)},
		"images for processors, 4 ranks": {4, program("-n", "4", self)},
		"images for processors, 8 ranks": {8, program("-n", "8", self)},
		"code objects":                   {2, executing(t, machineOf(t, gpus.Options{GPUs: 2, Shape: gpus.Shape("gfx942"), Seed: 1}), "gfx942", 2)(self)},
	} {
		t.Run(name, func(t *testing.T) {
			c := x.program
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			c.Env = append(c.Env, hipRank+"="+pipe, "MSCCLPP_LAUNCH__LINGER=5m") // in which the others say why they end
			code, out, errs := runs(c)
			if code != 128+9 || strings.Count(errs, "ended: ") != x.ranks-1 || strings.Contains(errs, "before anybody died") || !strings.Contains(errs, "rank 1") || !strings.Contains(errs, "died") {
				t.Errorf("code %d, %s, %s: expected that all others name rank 1", code, out, errs)
			}
		})
	}
}
