package bootstrap

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A large job in one process over real sockets: rounds, messages and bytes are
// what log3(N) promises.
func TestThousandRanks(t *testing.T) {
	n := 1024
	if testing.Short() || raceEnabled {
		n = 128
	}
	// 18 descriptors a rank, both ends of each link being here.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for uint64(19*n) > limit.Cur {
		n /= 2
		t.Logf("ulimit -n is %d: %d ranks", limit.Cur, n)
	}
	before := settledFDs(t)
	start := time.Now()
	ranks := joinAll(t, n, func(c *Config) { c.Timeout = patience })
	t.Logf("%d ranks joined in %v, %d goroutines, %d descriptors", n, time.Since(start), runtime.NumGoroutine(), openFDs(t))

	wantRounds := 0
	for reach := 1; reach < n; reach *= 3 {
		wantRounds++
	}
	ctx := bounded(t, patience)
	var base []Stats
	for _, b := range ranks {
		s := b.Stats()
		// Joining is two all-gathers: of the table, and of what hosts can do.
		if s.Rounds != uint64(2*wantRounds) || s.Messages > uint64(4*wantRounds) {
			t.Fatalf("rank %d joined in %d rounds and %d messages, expected %d and at most %d", b.Rank(), s.Rounds, s.Messages, 2*wantRounds, 4*wantRounds)
		}
		if limit := uint64(n*(entrySize+8+1+8) + 4*wantRounds*64); s.Bytes > limit {
			t.Fatalf("rank %d sent %d bytes to join, expected at most %d", b.Rank(), s.Bytes, limit)
		}
		base = append(base, s)
	}
	start = time.Now()
	each(t, ranks, func(b *TCP) error {
		all, err := AllGatherBytes(ctx, b, 1, binary.LittleEndian.AppendUint32(nil, uint32(b.Rank())))
		if err != nil {
			return err
		}
		for r, got := range all {
			if len(got) != 4 || binary.LittleEndian.Uint32(got) != uint32(r) {
				return fmt.Errorf("block %d is %x", r, got)
			}
		}
		return Barrier(ctx, b, 2)
	})
	t.Logf("all-gather and barrier in %v", time.Since(start))
	for i, b := range ranks {
		s := b.Stats()
		rounds, messages := s.Rounds-base[i].Rounds, s.Messages-base[i].Messages
		if rounds != uint64(2*wantRounds) || messages > uint64(4*wantRounds) {
			t.Fatalf("rank %d: %d rounds and %d messages, expected %d and at most %d", i, rounds, messages, 2*wantRounds, 4*wantRounds)
		}
	}
	// Each rank holds its listener, its socket for descriptors and its links.
	links := 0
	for _, b := range ranks {
		links += len(neighbors(b.Rank(), n))
	}
	if open := settledFDs(t) - before; open != 2*n+links {
		t.Errorf("%d descriptors for %d ranks, expected %d", open, n, 2*n+links)
	}
	start = time.Now()
	closeAll(ranks)
	t.Logf("closed in %v", time.Since(start))
	if after := settledFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after: expected as many", before, after)
	}
}
