package collectives_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
)

// Ranks whose settings differ are refused before anything depends on these, whether they
// share memory or not. All of them hear which rank it is, what differs, and both values.
func TestSettingsThatDifferAreRefused(t *testing.T) {
	own := []collectives.Row{{Collective: collectives.AllReduce, Algorithm: "twophase_chunk"}}
	for name, x := range map[string]struct {
		change func(o *collectives.Options)
		words  []string
	}{
		"scratch":      {func(o *collectives.Options) { o.Scratch = 4 << 20 }, []string{"comm.scratch is 4194304 bytes, and on rank 0 33554432 bytes"}},
		"blocks":       {func(o *collectives.Options) { o.MaxBlocks = 3 }, []string{"comm.max_blocks is 3, and on rank 0 0"}},
		"copies":       {func(o *collectives.Options) { o.NoCopies = true }, []string{"collectives.copy_engines is false, and on rank 0 true"}},
		"copy scratch": {func(o *collectives.Options) { o.CopyScratch = 2 << 20 }, []string{"collectives.copy_scratch is 2097152 bytes, and on rank 0 1073741824 bytes"}},
		"signatures":   {func(o *collectives.Options) { o.Signatures = collectives.SignaturesNever }, []string{"check.signatures is never, and on rank 0 stall"}},
		"lines":        {func(o *collectives.Options) { o.NoLines = true }, []string{"collectives.lines is never, and on rank 0 auto"}},
		"table":        {func(o *collectives.Options) { o.Table = own }, []string{"collectives.table is 1 rows with the sum ", ", and on rank 0 no rows"}},
		"two of them": {func(o *collectives.Options) { o.Scratch, o.Signatures = 4<<20, collectives.SignaturesAlways },
			[]string{"comm.scratch is 4194304 bytes, and on rank 0 33554432 bytes; check.signatures is always, and on rank 0 stall"}},
	} {
		for _, layout := range []string{"aaa", "aab"} {
			t.Run(name+" "+layout, func(t *testing.T) {
				at := strings.Split(layout, "")
				words := append(slices.Clone(x.words), "on host "+at[2]+" ", "(host a)")
				settle(t, at, func(rank int) (o collectives.Options) {
					if rank == 2 {
						x.change(&o)
					}
					return o
				}, nil, words)
			})
		}
	}
}

// A plugin of another version may have channels of other kinds under the same name.
func TestKindsOfChannelsThatDifferAreRefused(t *testing.T) {
	settle(t, []string{"a", "a"}, func(int) collectives.Options { return collectives.Options{} }, func(rank int, inner framework.Transport) framework.Transport {
		if rank == 1 {
			return portsOnly{inner}
		}
		return inner
	}, []string{"kinds of channels of the transports is [port], and on rank 0 [memory port switch]"})
}

// One rank's plugin has no kernels: alone it would go over ports, and the others over shared memory.
func TestKernelsThatDifferAreRefused(t *testing.T) {
	settle(t, []string{"a", "a"}, func(int) collectives.Options { return collectives.Options{} }, func(rank int, inner framework.Transport) framework.Transport {
		if rank == 1 {
			return withoutKernels{inner}
		}
		return inner
	}, []string{"collectives that the transports have kernels for is [], and on rank 0 [allreduce allgather"})
}

// A value that stands for the default is the default, and values that each rank may have of its own
// are not compared.
func TestSettingsThatMeanTheSame(t *testing.T) {
	settle(t, []string{"a", "b"}, func(rank int) (o collectives.Options) {
		if rank == 1 {
			o = collectives.Options{Scratch: collectives.HostScratch, CopyScratch: 1 << 30, Signatures: collectives.SignaturesStall, Table: []collectives.Row{}}
			o.Links.Host, o.Sharing = "b", 2
		}
		return o
	}, nil, nil)
}

// settle makes collectives of ranks on several hosts, and expects an error on all of them
// that blames the last one with these words; none: no error.
func settle(t *testing.T, at []string, options func(rank int) collectives.Options, wrap offer, words []string) {
	t.Helper()
	if wrap == nil {
		wrap = asItIs
	}
	local{at: at, offers: []offer{wrap}, together: true}.run(t, func(ctx context.Context, world *comm.Communicator) error {
		c, err := collectives.New(ctx, world, options(world.Rank()))
		if err == nil {
			defer c.Close()
		}
		if len(words) == 0 || err == nil {
			if len(words) > 0 {
				return errors.New("no error")
			}
			return err
		}
		if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != len(at)-1 {
			return fmt.Errorf("%w: expected ErrInvalid about rank %d", err, len(at)-1)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				return fmt.Errorf("%w: expected it to say %q", err, w)
			}
		}
		return world.Barrier(ctx) // all have heard the same, and are in step
	})
}

// Frameworks make many communicators of two ranks.
func TestScratchOnGPUsFollowsRanks(t *testing.T) {
	for ranks, mib := range map[int]uint64{1: 64, 2: 128, 3: 192, 4: 256, 8: 256} {
		if got := collectives.DeviceScratchOf(ranks) >> 20; got != mib {
			t.Errorf("%d ranks have %d MiB each: expected %d", ranks, got, mib)
		}
	}
}
