package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// Ranks that leave a job and join the next one at the same address at once meet there, and
// not in the old job, whatever rank is first.
func TestJoinAgainAtOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 11} { // in the second, not all ranks have links to rank 0
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			addr := freeAddr(t)
			var ranks sync.WaitGroup
			for r := range n {
				ranks.Go(func() {
					for job := range 12 {
						b, err := Join(bounded(t, 30*time.Second), Config{Rank: r, Size: n, Addr: addr})
						if err != nil {
							t.Errorf("rank %d, job %d: %v", r, job, err)
							return
						}
						if err := Barrier(bounded(t, 30*time.Second), b, 1); err != nil {
							t.Errorf("rank %d, barrier of job %d: %v", r, job, err)
						}
						_ = b.Close()
					}
				})
			}
			ranks.Wait()
		})
	}
}

// A job with another name waits at the address until the one that is there has ended, rank
// 0 as all others.
func TestNextJobWaitsForTheOldOne(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	old, next := [2]Config{}, [2]Config{}
	for r := range 2 {
		old[r] = Config{Rank: r, Size: 2, Addr: addr, Job: "old"}
		next[r] = Config{Rank: r, Size: 2, Addr: addr, Job: "next"}
	}
	first := joinConfigs(t, old[:])
	waiting := make(chan []*TCP, 1)
	go func() { waiting <- joinConfigs(t, next[:]) }()
	select {
	case <-waiting:
		t.Fatal("the next job did not wait")
	case <-time.After(300 * time.Millisecond):
	}
	if err := first[0].Err(); err != nil {
		t.Errorf("the old job: %v", err)
	}
	closeAll(first)
	closeAll(<-waiting)
}

// joinConfigs joins ranks of one job.
func joinConfigs(t *testing.T, configs []Config) []*TCP {
	t.Helper()
	ranks := make([]*TCP, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() {
			var err error
			if ranks[i], err = Join(bounded(t, 20*time.Second), c); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	all.Wait()
	return ranks
}

// A second process of a rank whose job is complete is refused for good, of rank 0 as well.
func TestSecondProcessOfARank(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	configs := []Config{{Rank: 0, Size: 2, Addr: addr}, {Rank: 1, Size: 2, Addr: addr}}
	ranks := joinConfigs(t, configs)
	defer closeAll(ranks)
	for r, say := range []string{"two processes were started with the same rank", "after all ranks were there"} {
		begun := time.Now()
		_, err := Join(bounded(t, 20*time.Second), configs[r])
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), say) {
			t.Errorf("second rank %d: %v: expected %q", r, err, say)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("second rank %d: after %v, expected at once", r, took)
		}
		if err := ranks[0].Err(); err != nil {
			t.Fatalf("the job ended by it: %v", err)
		}
	}
}

// While ranks are missing, a process whose connection has ended may be replaced.
func TestRankIsReplacedWhileOthersAreMissing(t *testing.T) {
	t.Parallel()
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := Config{Size: 3, Addr: l.Addr().String(), Secret: []byte("a secret of many bytes")}
	rank := func(r int) Config {
		c := base
		c.Rank = r
		if r == 0 {
			c.Listener = l
		}
		return c
	}
	joined := make(chan []*TCP, 1)
	conn := make(chan error, 1)
	go func() {
		var ranks [3]*TCP
		var all sync.WaitGroup
		all.Go(func() {
			var err error
			if ranks[0], err = Join(bounded(t, 20*time.Second), rank(0)); err != nil {
				t.Errorf("rank 0: %v", err)
			}
		})
		if err := <-conn; err == nil {
			for r := 1; r < 3; r++ {
				all.Go(func() {
					var err error
					if ranks[r], err = Join(bounded(t, 20*time.Second), rank(r)); err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				})
			}
		}
		all.Wait()
		joined <- ranks[:]
	}()
	first := arrivalConn(t, rank(1), l.Addr().String())
	_, err = first.Write(wire.Append(nil, wire.KindCheckIn, 0, entry{rank: 1, port: 9}.append(nil)))
	if err == nil {
		_, err = wire.Read(first) // the answer lists the missing ranks: this one is counted in
	}
	_ = first.Close()
	conn <- err
	if err != nil {
		t.Error(err)
	}
	closeAll(<-joined)
}

// Without a secret, processes of another user of this host cannot join, nor pretend to be
// rank 0.
func TestOtherUsersCannotJoin(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start a process of another user")
	}
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(l.Addr().String(), ":")
	failed := make(chan error, 1)
	go func() {
		_, err := Join(context.Background(), Config{Size: 2, Addr: l.Addr().String(), Listener: l, Timeout: 4 * time.Second, late: time.Nanosecond})
		failed <- err
	}()
	p, err := startAs(t, 65534, "wait", 1, 2, EnvAddr+"="+host, EnvPort+"="+port)
	if err != nil {
		t.Fatal(err, <-failed)
	}
	if got := p.expect("failed"); !strings.Contains(got.Error, "wrong secret") || !strings.Contains(got.Error, "mscclpp-65534/mscclpp-secret") || !strings.Contains(got.Error, EnvSecretFile) {
		t.Errorf("%+v: expected it to be refused, with the remedy", got)
	}
	if err := wantError(<-failed, framework.ErrPeer, 1, "rank 1 is missing", "turned down", "wrong secret"); err != nil {
		t.Error(err)
	}
}

// No two jobs without a secret use a key that is in the program.
func TestNoConstantKey(t *testing.T) {
	c := Config{Size: 2, Addr: "127.0.0.1:1"}
	id, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	if string(id.Key) == string(deriveKey(nil)) || !id.OneHost || id.HasSecret {
		t.Errorf("a job without a secret: %+v", id)
	}
}

func TestHandshakesAreBoundedByOpenFiles(t *testing.T) {
	for files, want := range map[uint64]int{64: 16, 256: 64, 1024: 256, 20000: maxHandshakes, 0: 8, 1 << 63: maxHandshakes} {
		if got := mostHandshakes(files); got != want {
			t.Errorf("%d files: %d handshakes, expected %d", files, got, want)
		}
	}
}
