package attach_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/collectivetest"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/plan/attach"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/transports/shm"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(16, runtime.NumCPU())) // ranks wait in C
	os.Exit(m.Run())
}

// job runs f as n ranks of this process.
func job(t *testing.T, n int, f func(ctx context.Context, c *collectives.Comm) error) {
	t.Helper()
	images := collectivetest.HostImages(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rank := func(boot *bootstrap.Local) error {
		dev, err := host.Open(host.Prefault(1 << 20))
		if err != nil {
			return err
		}
		config := shm.Config{}.Defaults()
		config.Images = images
		inner, err := shm.New(config)
		if err != nil {
			return err
		}
		tr, err := comm.NewTransport(ctx, inner, "embedded")
		if err != nil {
			return err
		}
		world, err := comm.New(ctx, boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
		if err != nil {
			return err
		}
		c, err := collectives.New(ctx, world, collectives.Options{Scratch: 1 << 20})
		if err != nil {
			return err
		}
		if err := f(ctx, c); err != nil {
			world.Abort(err)
			return errors.Join(err, c.Close())
		}
		return errors.Join(c.Close(), world.Close(), tr.CloseModules(), dev.Close(), boot.Close())
	}
	var ranks sync.WaitGroup
	for r, boot := range bootstrap.InProcess(n) {
		ranks.Go(func() {
			if err := rank(boot); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	ranks.Wait()
}

func compile(t *testing.T, name string, s library.Shape) *schema.Plan {
	t.Helper()
	p, err := library.Compile(name, s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Plans of the library, in place and not, perform calls of all kinds, in place and not, for all types and the reductions that they know.
func TestPlansPerformCalls(t *testing.T) {
	const n = 3
	shape := library.Shape{Ranks: n, Blocks: 2}
	in := shape
	in.InPlace = true
	plans := []*schema.Plan{
		compile(t, "allreduce-1pa", shape), compile(t, "allreduce-2pa-packets", in), compile(t, "allreduce-2pa-chunks", shape),
		compile(t, "allreduce-2pa-switch", in), compile(t, "allreduce-2pa-ports", shape), compile(t, "allreduce-pipelined", shape), compile(t, "alltoall", shape),
	}
	plans[2].Name, plans[5].Name = "second", "third"
	plans[3].Name = "fourth"
	job(t, n, func(ctx context.Context, c *collectives.Comm) error {
		if err := attach.All(ctx, c, loaded(plans...), nil, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		in, out := make([]byte, 1<<17), make([]byte, 1<<17)
		rig := collectivetest.OnHost(c, in, out)
		i := 0
		for _, p := range plans {
			kind, err := collectives.ParseCollective(p.Collective)
			if err != nil {
				return err
			}
			for range 12 {
				i++
				x := collectivetest.Trial{
					Kind: kind, Algorithm: p.Name, Type: kernel.DataType(i % kernel.DataTypes), Op: kernel.Op(i % 5), InPlace: i/2%2 == 0, Shift: i % 3,
				}
				x.Count = 16 * 4 * n * 4 * (1 + i%5) / x.Type.Size()
				if err := x.Run(rig, uint64(i)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func loaded(plans ...*schema.Plan) (list []attach.Loaded) {
	for _, p := range plans {
		list = append(list, attach.Loaded{Plan: p})
	}
	return list
}

// A source says which packets its plans have: granules of four bytes hold those of LL8 alone.
func TestPacketsOfASource(t *testing.T) {
	dir := t.TempDir()
	p := compile(t, "allreduce-1pa", library.Shape{Ranks: 2})
	p.Alignment = 4
	for _, name := range []string{"eight", "sixteen"} {
		p.Name = name
		if err := p.WriteFile(filepath.Join(dir, name+".json")); err != nil {
			t.Fatal(err)
		}
	}
	plans, err := attach.Read([]attach.Source{
		{Path: filepath.Join(dir, "eight.json"), Packets: 8}, {Path: filepath.Join(dir, "sixteen.json")},
	})
	if err != nil {
		t.Fatal(err)
	}
	job(t, 2, func(ctx context.Context, c *collectives.Comm) error {
		if err := attach.All(ctx, c, plans, nil, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		r := collectives.Request{Collective: collectives.AllReduce, Bytes: 1024, Count: 256, Type: kernel.Float32, Op: kernel.Sum}
		if _, err := c.Choice(r, "eight"); err != nil {
			t.Errorf("with packets of 8 bytes: %v", err)
		}
		if _, err := c.Choice(r, "sixteen"); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("with packets of 16 bytes: %v, expected that the plan does not serve the call", err)
		}
		return nil
	})
}

// Rows choose a plan for calls that it serves, and the library the others. A row of the table comes before.
func TestRowsOfPlans(t *testing.T) {
	p := compile(t, "allreduce-1pa", library.Shape{Ranks: 2, MinSize: 1024, MaxSize: 65536})
	other := compile(t, "allreduce-1pa", library.Shape{Ranks: 4})
	test := &schema.Plan{Name: "x", Collective: "test"}
	job(t, 2, func(ctx context.Context, c *collectives.Comm) error {
		for _, wrong := range []*schema.Plan{other, test} {
			if _, err := attach.To(ctx, c, wrong); !errors.Is(err, framework.ErrUnsupported) {
				t.Errorf("%v: expected that the plan is not for this communicator", err)
			}
		}
		rows := []collectives.Row{{Collective: collectives.AllReduce, MaxBytes: 2048, Algorithm: "allpair_ll8"}, {Algorithm: other.Name}}
		if err := attach.All(ctx, c, loaded(other, p), rows, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
		for _, x := range []struct {
			bytes uint64
			op    kernel.Op
			plan  bool
		}{{1024, kernel.Sum, false}, {4096, kernel.Sum, true}, {4096, kernel.Avg, true}, {65536, kernel.Max, true}, {65536 + 4096, kernel.Sum, false}, {4100, kernel.Sum, false}} {
			r := collectives.Request{Collective: collectives.AllReduce, Bytes: x.bytes, Count: x.bytes / 4, Type: kernel.Float32, Op: x.op}
			name, err := c.Choice(r, "")
			if err != nil || (name == p.Name) != x.plan {
				t.Errorf("%d bytes, %v: %s, %v", x.bytes, x.op, name, err)
			}
		}
		if err := c.RegisterAlgorithm(collectives.Algorithm{}); err == nil {
			t.Error("a nameless algorithm was taken")
		}
		_, err := attach.To(ctx, c, p)
		if err == nil || !strings.Contains(err.Error(), "registered already") {
			t.Errorf("%v: expected that the name is taken", err)
		}
		data := make([]float32, 1024)
		for i := range data {
			data[i] = float32(i * (c.Rank() + 1))
		}
		if err := c.AllReduce(unsafe.Pointer(&data[0]), unsafe.Pointer(&data[0]), len(data), kernel.Float32, kernel.Sum, nil); err != nil {
			return err
		}
		for i, got := range data {
			if got != float32(3*i) {
				t.Fatalf("element %d is %v", i, got)
			}
		}
		return nil
	})
}

// Files and folders are read by name; what is not right is refused, unless the configuration takes it.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, p *schema.Plan) string {
		file := filepath.Join(dir, name)
		if err := p.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	p := compile(t, "allreduce-1pa", library.Shape{Ranks: 2})
	a := write("b.json", p)
	q := compile(t, "alltoall", library.Shape{Ranks: 2})
	write("a.json.gz", q)
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("plans"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := attach.Read([]attach.Source{{Path: dir}})
	if err != nil || len(got) != 2 || got[0].Name != q.Name || got[1].Name != p.Name {
		t.Fatalf("%v, %v", got, err)
	}
	if _, err := attach.Read([]attach.Source{{Path: dir}, {Path: a}}); err == nil || !strings.Contains(err.Error(), "two plans have the name") {
		t.Errorf("%v: expected that a name stands for one plan", err)
	}
	race := "../verify/testdata/race/packets_rewritten.json"
	if _, err := attach.Read([]attach.Source{{Path: race}}); err == nil || !strings.Contains(err.Error(), "not right, but race: rank") || !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("%v: expected the verdict", err)
	}
	if got, err := attach.Read([]attach.Source{{Path: race, Unverified: true}}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := attach.Read([]attach.Source{{Path: filepath.Join(dir, "none")}}); !errors.Is(err, framework.ErrInvalid) || !slices.Contains(strings.Fields(err.Error()), "plans:") {
		t.Errorf("%v: expected that there is no such file", err)
	}
}
