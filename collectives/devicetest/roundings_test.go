package devicetest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// childRoundings is the value of childMode for ranks that print digests of what calls give of numbers that do not add up exactly.
const childRoundings = "roundings"

// roundingTypes names the types of a rank's calls, a list; none: all.
const roundingTypes = "DEVICETEST_TYPES"

// emulatedDriver names the emulated driver on a machine with GPUs, as it was packed for it.
const emulatedDriver = "DEVICETEST_EMULATED_DRIVER"

// odd fills memory with numbers below 2 in magnitude, or any integers, of all exponents and mantissas that a type has.
func odd(b []byte, typ kernel.DataType, seed, rank uint64) {
	source := rand.New(rand.NewPCG(seed, rank))
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], source.Uint64())
	}
	name := typ.String()
	if strings.HasPrefix(name, "i") || strings.HasPrefix(name, "u") {
		return
	}
	for size, i := typ.Size(), typ.Size()-1; i < len(b); i += size {
		b[i] &^= 0x40 // the highest bit of the exponent: sums of these are neither infinite nor no numbers
	}
}

// roundings makes a call by each algorithm for each type and operation.
func roundings(ctx context.Context, r *rank) error {
	const half, count = 1 << 20, 1027
	m, err := r.memory(ctx, 2*half)
	if err != nil {
		return err
	}
	rig, in, out := r.rig(ctx, m.Addr(), half), make([]byte, half/8), make([]byte, half)
	for _, kind := range collectivetest.Kinds() {
		for _, algorithm := range r.Algorithms(kind) {
			for typ := range kernel.DataType(kernel.DataTypes) {
				for _, op := range []kernel.Op{kernel.Sum, kernel.Prod, kernel.Min, kernel.Max, kernel.Avg, kernel.PreMulSum} {
					if only := os.Getenv(roundingTypes); only != "" && !slices.Contains(strings.Split(only, ","), typ.String()) || !kind.Reduces() && op != kernel.Sum {
						continue
					}
					x := trial{Kind: kind, Algorithm: algorithm, Count: count, Type: typ, Op: op}
					if err := r.digest(x, rig, in, out); err != nil {
						return fmt.Errorf("%v: %w", x, err)
					}
				}
			}
		}
	}
	return nil
}

// digest makes a call, if its algorithm serves it, and prints a digest of all that lies in the memory of the output.
func (r *rank) digest(x trial, rig collectivetest.Rig, in, out []byte) error {
	request := x.Request(r.Size())
	request.Registered = true
	if _, err := r.Choice(request, x.Algorithm); err != nil {
		if errors.Is(err, framework.ErrUnsupported) || errors.Is(err, framework.ErrInvalid) { // scaled inputs are not registered
			return nil
		}
		return err
	}
	odd(in, x.Type, uint64(x.Kind)<<16|uint64(x.Type)<<8|uint64(x.Op), uint64(r.Rank()))
	clear(out)
	if err := rig.In.Write(in, 0); err != nil {
		return err
	}
	if err := rig.Out.Write(out, 0); err != nil {
		return err
	}
	if err := rig.Call(x, rig.In.Pointer(0), rig.Out.Pointer(0)); err != nil {
		return err
	}
	if err := rig.Settle(); err != nil {
		return err
	}
	if err := rig.Out.Read(out, 0); err != nil {
		return err
	}
	fmt.Printf("%v %v %v %v %x\n", x.Kind, x.Algorithm, x.Type, x.Op, sha256.Sum256(out))
	return nil
}

// The interpreter gives the bits that GPUs give: where there are GPUs, and the emulated driver beside them, of all types; else
// where there is the emulated driver alone, the bits of the images for processors.
func TestBitsOfTheInterpreter(t *testing.T) {
	gpus, library := needsGPU(t), os.Getenv(emulatedDriver)
	var want, got [2][]string
	switch {
	case len(gpus) < 2:
		t.Skip("needs two GPUs")
	case library != "":
		want = said(t, childRoundings)
		got = said(t, childRoundings, cuda.EnvLibrary+"="+library, emulated.EnvRun+"=ptx", emulated.EnvMemory+"=805306368", emulated.EnvImages+"="+t.TempDir(), "CUDA_VISIBLE_DEVICES=0,1")
		for _, g := range gpus[:2] {
			t.Logf("%s, %s: %d calls of each of two ranks", g.Device, g.Name, len(want[0]))
		}
	case imageFolder != "":
		want = said(t, childRoundings, roundingTypes+"=f32,f16")
		got = said(t, childRoundings, roundingTypes+"=f32,f16", emulated.EnvRun+"=ptx", emulated.EnvImages+"="+t.TempDir())
	default:
		t.Skipf("needs the emulated driver: %s does not name it", emulatedDriver)
	}
	differ := 0
	for r := range want {
		if len(want[r]) < 100 || len(got[r]) != len(want[r]) {
			t.Fatalf("rank %d made %d calls, and %d in the interpreter: expected at least 100 of both", r, len(want[r]), len(got[r]))
		}
		for i := range want[r] {
			if got[r][i] != want[r][i] {
				differ++
				t.Errorf("rank %d: %s: the interpreter gives %s", r, want[r][i], got[r][i])
			}
		}
	}
	t.Logf("%d calls, %d with other bits", len(want[0])+len(want[1]), differ)
}
