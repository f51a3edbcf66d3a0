package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image/imagetest"
	"github.com/mscclpp-go/mscclpp/transports"
)

// job runs f as the ranks of a job on the CPU, all in this process.
func job(t *testing.T, ranks int, f func(ctx context.Context, x *collectives.Comm, code []byte) error) []error {
	t.Helper()
	images := imagetest.Build(t, "kernel/kernels.json", "native")
	code, err := images.Read(images.Infos()[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	arch := images.Infos()[0].Arch
	theirs, err := collectivetest.Images(t.Context(), collectivetest.Source("transports/shm/kernels/kernels.json"), arch)
	if err != nil {
		t.Fatal(err)
	}
	carrier := func() (framework.Transport, error) { return transports.Embed("shm", map[string]any{"images": theirs}) }
	return together(t, ranks, carrier, func(int) (device.Device, error) { return host.Open() },
		func(ctx context.Context, x *collectives.Comm) error { return f(ctx, x, code) })
}

// together runs f as ranks over one transport, and returns how each has ended.
func together(t *testing.T, ranks int, carrier func() (framework.Transport, error), open func(rank int) (device.Device, error),
	f func(ctx context.Context, x *collectives.Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	outcome := make([]error, ranks)
	var all sync.WaitGroup
	for r, boot := range bootstrap.InProcess(ranks) {
		all.Go(func() {
			dev, err := open(r)
			if err != nil {
				outcome[r] = err
				return
			}
			defer dev.Close()
			outcome[r] = member(ctx, boot, dev, carrier, f)
		})
	}
	all.Wait()
	return outcome
}

// member is one rank: transport, communicator, collectives.
func member(ctx context.Context, boot *bootstrap.Local, dev device.Device, carrier func() (framework.Transport, error),
	f func(context.Context, *collectives.Comm) error) error {
	inner, err := carrier()
	if err != nil {
		return err
	}
	t, err := comm.NewTransport(ctx, inner, "embedded")
	if err != nil {
		return err
	}
	defer t.CloseModules()
	c, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{t}})
	if err != nil {
		return err
	}
	defer c.Close()
	x, err := collectives.New(ctx, c, collectives.Options{})
	if err != nil {
		return err
	}
	defer x.Close()
	return f(ctx, x)
}

// The example as it runs under mscclpp-run, on the CPU: compare itself checks results.
func TestBothFormsGiveTheSame(t *testing.T) {
	for _, s := range []shape{
		{m: 128, n: 256, k: 96, ranks: 1},
		{m: 512, n: 256, k: 64, ranks: 2},
		{m: 384, n: 128, k: 32, ranks: 3},
		{m: 512, n: 128, k: 64, ranks: 4},
	} {
		reports := make([]report, s.ranks)
		for r, err := range job(t, s.ranks, func(ctx context.Context, x *collectives.Comm, code []byte) (err error) {
			reports[x.Communicator().Rank()], err = compare(ctx, x, code, s, 2)
			return err
		}) {
			if err != nil {
				t.Errorf("%+v: rank %d: %v", s, r, err)
			}
		}
		for r, got := range reports {
			if got != reports[0] || got.count != 2 || got.fused <= 0 || got.multiply <= 0 || got.apart < got.multiply {
				t.Errorf("%+v: rank %d reports %+v, rank 0 %+v", s, r, got, reports[0])
			}
		}
	}
}

// The check finds one wrong bit of either result, and numbers that are not those of
// the inputs.
func TestWrongResultsAreFound(t *testing.T) {
	s := shape{m: 128, n: 128, k: 32, ranks: 1}
	for _, err := range job(t, 1, func(ctx context.Context, x *collectives.Comm, code []byte) error {
		w, err := newWork(ctx, x, code, s)
		if err != nil {
			return err
		}
		defer w.close(ctx)
		if err := w.verify(1); err != nil {
			return err
		}
		a, b := matrix{1}, matrix{2}
		if err := w.sample(a, matrix{3}, 1); err == nil || !strings.Contains(err.Error(), "which rank 0 makes") {
			t.Errorf("the product with another matrix: %v, expected an error that says which element is wrong", err)
		}
		var bits [2]byte
		at := (17*s.n + 5) * 2
		if err := w.device.read(bits[:], w.c[1], at); err != nil {
			return err
		}
		bits[0] ^= 1
		if err := w.device.write(w.c[1], at, bits[:]); err != nil {
			return err
		}
		if err := w.alike(); err == nil || !strings.Contains(err.Error(), "element (17, 5)") {
			t.Errorf("one bit is wrong: %v, expected an error that names element (17, 5)", err)
		}
		return w.sample(a, b, 1) // of the other result
	}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// A rank that gives up ends the kernels of the others, which name it.
func TestDeadPeerEndsTheKernels(t *testing.T) {
	s := shape{m: 256, n: 128, k: 32, ranks: 2}
	broken := errors.New("the second rank has given up")
	outcome := job(t, 2, func(ctx context.Context, x *collectives.Comm, code []byte) error {
		w, err := newWork(ctx, x, code, s)
		if err != nil {
			return err
		}
		defer w.close(ctx)
		if w.rank == 1 {
			x.Communicator().Abort(broken)
			return nil
		}
		return errors.Join(w.fused(), w.finish())
	})
	if err := outcome[0]; err == nil || framework.PeerOf(err) != 1 || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("rank 0 ends with %v, expected an error that names rank 1 and what it said", err)
	}
	if outcome[1] != nil {
		t.Error(outcome[1])
	}
}

func TestShapesThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		shape shape
		want  string
	}{
		{shape{8192, 8192, 8192, 4}, ""},
		{shape{128, 128, 32, 1}, ""},
		{shape{8192, 8192, 8192, 9}, "9 ranks: expected at most 8"},
		{shape{8192, 8192, 8192, 3}, "-m 8192: expected a multiple of 384"},
		{shape{0, 128, 32, 1}, "-m 0"},
		{shape{128, 100, 32, 1}, "-n 100: expected a multiple of 128"},
		{shape{128, -128, 32, 1}, "-n -128"},
		{shape{128, 128, 40, 1}, "-k 40: expected a multiple of 32"},
		{shape{1 << 33, 128, 32, 1}, "31 bits"},
	} {
		err := c.shape.check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, expected %q", c.shape, err, c.want)
		}
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-m", "512", "--iters", "0", "--device", "host"}, io.Discard)
	if want := (options{m: 512, n: 8192, k: 8192, device: "host"}); err != nil || o != want {
		t.Errorf("%+v, %v: expected %+v", o, err, want)
	}
	for _, c := range []struct{ arguments, want string }{
		{"--iters -1", "expected 0 or more"},
		{"-m 512 1024", `argument "1024"`},
		{"--tiles 3", "-tiles"},
	} {
		var said bytes.Buffer
		if _, err := parse(strings.Fields(c.arguments), &said); err == nil || !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: %v, and says %q: expected %q", c.arguments, err, said.String(), c.want)
		}
	}
	if _, err := parse([]string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

func TestWhichImageIsTaken(t *testing.T) {
	ptx, err := options{}.image([]string{"sm_90", "sm_80"})
	if err != nil || !bytes.Contains(ptx, []byte(".entry fused_gemm")) {
		t.Errorf("on a GPU: %.80q, %v: expected the PTX within the program", ptx, err)
	}
	file := filepath.Join(t.TempDir(), "own.ptx")
	if err := os.WriteFile(file, []byte("of nvcc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if own, err := (options{ptx: file}).image(nil); err != nil || string(own) != "of nvcc" {
		t.Errorf("--ptx: %q, %v", own, err)
	}
	if _, err := (options{}).image([]string{"x86-64-v3"}); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "--kernels") {
		t.Errorf("on the host: %v, expected an error that names --kernels", err)
	}
	if _, err := (options{kernels: t.TempDir()}).image([]string{"sm_80"}); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("an empty folder: %v, expected that there are no images", err)
	}
}

// Without a GPU the program says what it needs.
func TestNeedsAGPU(t *testing.T) {
	if n, err := cuda.Count(); err == nil {
		t.Skipf("only for machines without a GPU: this has %d", n)
	}
	t.Setenv(cuda.EnvLibrary, "/nowhere/libcuda.so.1")
	t.Setenv("MSCCLPP_LOG__LEVEL", "none")
	err := run(t.Context(), options{m: 128, n: 128, k: 32, device: "cuda"})
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "every rank needs an NVIDIA GPU") {
		t.Errorf("%v: expected an error that asks for a GPU", err)
	}
}

func TestTable(t *testing.T) {
	r := report{
		shape: shape{8192, 8192, 8192, 4}, ranks: 4, count: 20,
		fused: 500 * time.Microsecond, multiply: 450 * time.Microsecond, gather: 300 * time.Microsecond, apart: 750 * time.Microsecond,
	}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{
		"8192 x 8192 x 8192, f16, 4 ranks of 2048 rows",
		"multiplication alone  450.0    610.8   1.67",
		"all-gather alone  300.0        -      -",
		"one after the other  750.0    366.5   1.00",
		"fused  500.0    549.8   1.50",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	report{shape: r.shape, ranks: 4}.print(&out)
	if strings.Contains(out.String(), "TFLOP") {
		t.Errorf("without measurements:\n%s", out.String())
	}
}
