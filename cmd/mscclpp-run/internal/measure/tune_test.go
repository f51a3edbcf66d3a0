package measure

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/bench/tune"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/setup"
	"github.com/mscclpp-go/mscclpp/plan/attach"
	"github.com/mscclpp-go/mscclpp/plan/library"
)

// A table names plans of the configuration, and their files.
func TestTablesNameFilesOfPlans(t *testing.T) {
	p, err := library.Compile("allreduce-1pa", library.Shape{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("plans", 0o700), p.WriteFile("plans/a.json")); err != nil {
		t.Fatal(err)
	}
	plans, err := attach.Names(setup.PlanSources([]config.Plan{{Path: "plans", Unverified: true, Packets: 8}}))
	if err != nil || len(plans) != 1 || !(&group{plans: plans}).Fixed(p.Name) || (&group{plans: plans}).Fixed("ring") {
		t.Fatalf("%v, %v", plans, err)
	}
	row := func(name string) tune.Row {
		return tune.Row{Collective: bench.AllReduce, MaxBytes: 1024, Ranks: 2, Choice: tune.Choice{Algorithm: name}}
	}
	rows := []tune.Row{row(p.Name), row("ring"), row(p.Name)}
	var b strings.Builder
	if err := (&tuneFlags{}).write(&b, rows, named(rows, plans)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("table.yaml", []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := config.Load(config.Sources{Job: "table.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Plan{{Path: filepath.Join(here, "plans", "a.json"), Unverified: true, Packets: 8}}
	if !slices.Equal(e.Collectives.Plans, want) || len(e.Collectives.Table) != 3 || e.Collectives.Table[0].Algorithm != p.Name {
		t.Errorf("%+v and %+v: expected the plans %+v", e.Collectives.Plans, e.Collectives.Table, want)
	}
	if found := named(rows[1:2], plans); len(found) != 0 {
		t.Errorf("%v: expected no plan that no row names", found)
	}
}

func TestTuneFlags(t *testing.T) {
	f := &tuneFlags{}
	if err := parseVerb(f.command(&verb.Env{}), "allgather", "reduce-scatter", "--bytes", "4K:1M", "--dtype", "f16", "--op", "max", "--buffers", "registered", "--budget", "5s"); err != nil {
		t.Fatal(err)
	}
	o := f.options
	if len(o.Collectives) != 2 || o.Collectives[1] != bench.ReduceScatter || o.Sizes.Min != 4<<10 || o.Sizes.Factor != 4 || o.Type != kernel.Float16 ||
		o.Op != kernel.Max || len(o.Registered) != 1 || !o.Registered[0] || o.Budget != 5*time.Second {
		t.Errorf("%+v", o)
	}
	f = &tuneFlags{}
	if err := parseVerb(f.command(&verb.Env{})); err != nil || len(f.options.Collectives) != len(tuned) || len(f.options.Registered) != 2 {
		t.Errorf("%v, %+v", err, f.options)
	}
	for want, args := range map[string][]string{
		`collective "sum"`:     {"sum"},
		"gather does not go":   {"allreduce", "gather"},
		`--buffers "some"`:     {"--buffers", "some"},
		"--budget 0s":          {"--budget", "0s"},
		`"1X"`:                 {"--bytes", "1X"},
		`"f33"`:                {"--dtype", "f33"},
		`"add"`:                {"--op", "add"},
		"unknown flag: --byte": {"--byte", "1"},
	} {
		if err := parseVerb((&tuneFlags{}).command(&verb.Env{}), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
