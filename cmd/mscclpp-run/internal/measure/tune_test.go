package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

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
