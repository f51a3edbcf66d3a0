package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	runtime "github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/internal/gfx/gpus"
	"github.com/mscclpp-go/mscclpp/internal/gfx/isa"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object"
	"github.com/mscclpp-go/mscclpp/internal/gfx/object/objecttest"
)

// executing is the program on AMD's GPUs that execute the committed code objects, under the model of the caches. There is no image
// for processors.
func executing(t *testing.T, machine *gpus.Server, arch string, ranks int) func(args ...string) *exec.Cmd {
	t.Helper()
	plain := onHIPWith(t)
	return func(args ...string) *exec.Cmd {
		c := plain(append([]string{"-n", strconv.Itoa(ranks)}, args...)...)
		c.Env = append(append(c.Env, runtime.MachineEnv(machine.Path(), arch)...), emulated.EnvGPUs+"="+strconv.Itoa(ranks))
		return c
	}
}

// types are those that there are code objects for.
var types = []string{"f32", "f16", "bf16", "f64", "i8", "u8", "i32", "u32", "i64", "u64", "e4m3", "e5m2", "e4m3b15"}

// Jobs of processes over xgmi execute the committed code objects, and pass check, with the operators for inference. INTERPRET_RANKS, for
// make interpret, has numbers of ranks.
func TestCheckExecutesCodeObjects(t *testing.T) {
	for _, arch := range []string{"gfx942", "gfx90a"} {
		for word := range strings.FieldsSeq(cmp.Or(os.Getenv("INTERPRET_RANKS"), "2")) {
			ranks, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%s %d", arch, ranks), func(t *testing.T) {
				machine := machineOf(t, gpus.Options{GPUs: ranks, Shape: gpus.Shape(arch), Seed: 1})
				program := executing(t, machine, arch, ranks)
				code, cases, errs := runs(program("check", "--device", "hip", "--list"))
				if code != 0 {
					t.Fatalf("code %d, %s", code, errs)
				}
				t.Log(cases)
				code, out, errs := runs(program("check", "--device", "hip"))
				if code != 0 || !strings.Contains(out, " 0 failed") {
					t.Errorf("code %d, %s, %s", code, out, errs)
				}
				if list := notRun(t, machine, "inference/image", "inference/moe/image"); len(list) > 0 {
					t.Errorf("%q have not run", list)
				}
				sums := []string{"check", "--device", "hip"} // of steps, which run beside other kernels of their rank: in jobs alone
				for _, typ := range types {
					sums = append(sums, "--case", "allreduce,"+typ+",max,3000,algorithm=copy_staged")
				}
				if code, out, errs := runs(program(sums...)); code != 0 || !strings.Contains(out, " 0 failed") {
					t.Errorf("code %d, %s, %s", code, out, errs)
				}
				list := notRun(t, machine, "collectives/image")
				t.Logf("left to the tests of collectives/gfxtest and collectives/hiptest:\n%s", strings.Join(list, "\n"))
				for _, name := range list {
					if strings.HasSuffix(name, "mscclpp_steps_sum") || strings.HasSuffix(name, "mscclpp_steps_move") {
						t.Errorf("%s has not run", name)
					}
				}
			})
		}
	}
}

// machineOf is a machine for the rest of the test, which fails if kernels make mistakes.
func machineOf(t *testing.T, o gpus.Options) *gpus.Server {
	t.Helper()
	machine, err := gpus.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machine.Close(); err != nil {
			t.Error(err)
		}
	})
	return machine
}

// notRun lists the kernels of committed code objects that a machine has not executed.
func notRun(t *testing.T, machine *gpus.Server, folders ...string) (list []string) {
	t.Helper()
	for _, folder := range folders {
		some, err := machine.NotRun(objecttest.In(t, folder))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, some...)
	}
	return list
}

// Jobs execute the committed code objects of execution plans, both kernels of every type, with results that are right.
func TestPlansExecuteCodeObjects(t *testing.T) {
	files := []string{"allreduce-2pa-packets", "allreduce-2pa-chunks"}
	for i, plan := range files {
		files[i] = filepath.Join(t.TempDir(), plan+".json")
		if code, out, errs := runs(command(t, "plan", "compile", plan, "--ranks", "2", "--output", files[i])); code != 0 {
			t.Fatalf("compile %s: code %d, %s%s", plan, code, out, errs)
		}
	}
	for _, arch := range []string{"gfx942", "gfx90a"} {
		machine := machineOf(t, gpus.Options{GPUs: 2, Shape: gpus.Shape(arch), Seed: 1})
		program := executing(t, machine, arch, 2)
		for _, typ := range types {
			args := append([]string{"plan", "bench", "--device", "hip", "--check", "-b", "4K:4K", "--dtype", typ, "--iters", "1", "--warmup", "0", "--format", "json"}, files...)
			if code, out, errs := runs(program(args...)); code != 0 || strings.Count(out, `"errors":0,`) != len(files) {
				t.Errorf("%s, %s: code %d, %s, %s: expected %d right rows", arch, typ, code, out, errs, len(files))
			}
		}
		if list := notRun(t, machine, "plan/image"); len(list) > 0 {
			t.Errorf("%q have not run", list)
		}
	}
}

// A job fails whose code objects do not wait for their write-backs and stores before they signal.
func TestCheckFindsWeakCodeObjects(t *testing.T) {
	changed := 0
	o := gpus.Options{GPUs: 2, Shape: gpus.Shape("gfx942"), Seed: 1, Plant: func(o *object.Object) { changed += withoutWaits(t, o) }}
	machine, err := gpus.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close() // its mistakes are expected
	code, out, _ := runs(executing(t, machine, "gfx942", 2)("check", "--device", "hip", "--case", "allreduce,f32,sum,65536,algorithm=twophase_chunk"))
	if code == 0 || changed == 0 || !strings.Contains(out, "FAIL") {
		t.Errorf("code %d, %d waits removed, %s: expected a failure", code, changed, out)
	}
}

// withoutWaits takes away each wait behind a write-back.
func withoutWaits(t *testing.T, o *object.Object) (changed int) {
	const nop = 0xbf800000
	for _, f := range o.Symbols {
		behind := false
		for addr := f.Start; addr < f.Start+f.Size; {
			i, err := isa.Decode(o.Arch, o.Image[addr:o.Text.End], addr)
			if err != nil {
				t.Error(err)
				return changed
			}
			if wait := i.Name == "s_waitcnt"; wait && behind {
				binary.LittleEndian.PutUint32(o.Image[addr:], nop)
				changed++
			} else {
				behind = i.Name == "buffer_wbl2"
			}
			addr += uint64(i.Size)
		}
	}
	return changed
}
