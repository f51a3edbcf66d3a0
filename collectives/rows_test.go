package collectives_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/collectives/image"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// A row that nobody can mean is refused when collectives are made, whether ranks share
// memory or not, and when a program replaces the table. The error names the row, what it
// has, and what was expected.
func TestRowsWithMistakes(t *testing.T) {
	good := collectives.Row{Collective: collectives.Broadcast, Algorithm: "chunk"}
	for name, x := range map[string]struct {
		row  collectives.Row
		want string
	}{
		"misspelled":         {collectives.Row{Collective: collectives.AllReduce, Algorithm: "twofase_chunk"}, `algorithm "twofase_chunk" of allreduce (did you mean "twophase_chunk"?): expected one of allpair_chunk allpair_ll16`},
		"of a GPU":           {collectives.Row{Collective: collectives.AllReduce, Algorithm: "onshot_ll8"}, `(did you mean "oneshot_ll8"?)`},
		"nobody's":           {collectives.Row{Collective: collectives.AllReduce, Algorithm: "fastest"}, `algorithm "fastest" of allreduce: expected one of`},
		"none":               {collectives.Row{Collective: collectives.Barrier}, `algorithm "" of barrier: expected one of hierarchical_direct hierarchical_packets hierarchical_small ports signal`},
		"another's":          {collectives.Row{Collective: collectives.AllGather, Algorithm: "twophase_chunk"}, `of allgather: expected`},
		"any":                {collectives.Row{Algorithm: "chunks"}, `algorithm "chunks" (did you mean "chunk"?)`},
		"of messages":        {collectives.Row{Collective: collectives.Gather, Algorithm: "zerocopy"}, `of gather: expected one of chunk hierarchical_direct ll128 ports`},
		"unknown collective": {collectives.Row{Collective: 77, Algorithm: "chunk"}, `collective(77): expected one of allreduce`},
		"blocks":             {collectives.Row{Collective: collectives.AllReduce, Algorithm: "ring", Blocks: -1}, "-1 blocks of 0 threads: expected none below 0"},
		"ranks":              {collectives.Row{Collective: collectives.AllReduce, Algorithm: "ring", MinRanks: 4, MaxRanks: 3}, "4 to 3 ranks: expected"},
	} {
		rows := []collectives.Row{good, x.row}
		refused := func(err error) error {
			var row *collectives.RowError
			if !errors.Is(err, framework.ErrInvalid) || !errors.As(err, &row) || row.Row != 2 || !strings.Contains(err.Error(), "collectives.table: row 2: ") || !strings.Contains(err.Error(), x.want) {
				return fmt.Errorf("%w: expected a RowError about row 2 with %q", err, x.want)
			}
			return nil
		}
		for _, layout := range []string{"aa", "ab"} {
			t.Run(name+" "+layout, func(t *testing.T) {
				local{at: strings.Split(layout, ""), offers: []offer{asItIs}, together: true}.run(t, func(ctx context.Context, world *comm.Communicator) error {
					_, err := collectives.New(ctx, world, collectives.Options{Table: rows})
					if err := refused(err); err != nil {
						return err
					}
					c, err := collectives.New(ctx, world, collectives.Options{})
					if err != nil {
						return err
					}
					defer c.Close()
					return refused(c.UseTable(rows))
				})
			})
		}
	}
}

// A row for an algorithm that exists and is not for this job is passed over, and the log says so; a
// field that is left out of a row fits everything; and a row may have an algorithm of the program.
func TestRowsThatDoNotApply(t *testing.T) {
	rows := []collectives.Row{
		{Collective: collectives.AllReduce, Algorithm: "oneshot_ll8"},
		{Collective: collectives.Scatter, Algorithm: "chunk"},
		{Collective: collectives.AllReduce, Algorithm: "ring"},
		{Algorithm: "direct_ll8"},
		{Algorithm: "ll16"},
	}
	var said buffer
	l := local{at: []string{"a", "a"}, offers: []offer{asItIs}, together: true, log: slog.New(slog.NewTextHandler(&said, nil))}
	l.run(t, func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, collectives.Options{Table: rows})
		if err != nil {
			return err
		}
		defer c.Close()
		for kind, want := range map[collectives.Collective]string{collectives.AllReduce: "ring", collectives.AllGather: "ll16", collectives.ReduceScatter: "ll16", collectives.Broadcast: "chunk"} {
			if got, err := c.Choice(collectives.Request{Collective: kind, Bytes: 1 << 20, Count: 1 << 17}, ""); got != want || err != nil {
				return fmt.Errorf("%v by %s, %v: expected %s", kind, got, err, want)
			}
		}
		mine := collectives.Algorithm{Collective: collectives.AllReduce, Name: "mine", Run: func(*collectives.Comm, *collectives.Call) error { return nil }}
		table := []collectives.Row{{Collective: collectives.AllReduce, Algorithm: "mine"}}
		if err := c.UseTable(table); !errors.Is(err, framework.ErrInvalid) {
			return fmt.Errorf("%v: expected ErrInvalid for what is not registered yet", err)
		}
		return errors.Join(c.RegisterAlgorithm(mine), c.UseTable(table))
	})
	for _, want := range []string{
		`rows="1 (allreduce oneshot_ll8), 4 (any direct_ll8)" because="no transport of this job offers their algorithms"`,
		`rows="2 (scatter chunk)" because="messages do not go by the table"`,
	} {
		if strings.Count(said.String(), want) != 2 || strings.Count(said.String(), "rows of collectives.table are passed over") != 4 {
			t.Errorf("the log has:\n%s\nexpected of both ranks %s", &said, want)
		}
	}
}

// The algorithms that a table may name are those of the kernels that there are, on the
// host and on GPUs, those in two levels, and no others.
func TestAlgorithmsThatExist(t *testing.T) {
	there := map[string]bool{}
	set, err := image.Images()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range set.Infos() {
		for _, symbol := range set.Symbols(info.ID) {
			there[strings.Replace(strings.TrimPrefix(symbol, "mscclpp_"), "_", " ", 1)] = true
		}
	}
	var mu sync.Mutex
	note := func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, collectives.Options{})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, k := range world.Kernels() {
			there[k.Collective+" "+k.Algorithm] = true
		}
		for k := collectives.AllReduce; k <= collectives.SendRecv; k++ {
			for _, name := range c.Algorithms(k) {
				there[k.String()+" "+name] = true
			}
		}
		return c.Close()
	}
	for _, layout := range []string{"aa", "aab"} {
		local{at: strings.Split(layout, ""), offers: []offer{asItIs}, together: true}.run(t, note)
	}
	// Of copy engines, of kernels between hosts, and of what AMD's GPUs make of all-reduce, there is nothing here that offers them.
	onGPUs := []string{"copy", "copy_staged", "hierarchical_direct", "ll128", "shares_to_all"}
	for k := collectives.AllReduce; k <= collectives.SendRecv; k++ {
		exist := collectives.Existing(k)
		for _, name := range exist {
			if !there[k.String()+" "+name] && !slices.Contains(onGPUs, name) {
				t.Errorf("%v %s: nothing offers it", k, name)
			}
		}
		for is := range there {
			if name, of := strings.CutPrefix(is, k.String()+" "); of && !slices.Contains(exist, name) {
				t.Errorf("%s: expected it among %s", is, exist)
			}
		}
	}
}

// buffer is what several ranks log to.
type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}
