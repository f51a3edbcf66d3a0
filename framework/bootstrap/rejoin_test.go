package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
	"github.com/mscclpp-go/mscclpp/internal/promise"
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
						b, err := Join(bounded(t, patience), Config{Rank: r, Size: n, Addr: addr})
						if err != nil {
							t.Errorf("rank %d, job %d: %v", r, job, err)
							return
						}
						if err := Barrier(bounded(t, patience), b, 1); err != nil {
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
			if ranks[i], err = Join(bounded(t, patience), c); err != nil {
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
	for r, text := range []string{"two processes were started with the same rank", "after all ranks were there"} {
		watch := promise.Begin()
		_, err := Join(bounded(t, patience), configs[r])
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("second rank %d: %v: expected %q", r, err, text)
		}
		if err := watch.Kept(10 * time.Second); err != nil {
			t.Errorf("second rank %d: %v", r, err)
		}
		if err := ranks[0].Err(); err != nil {
			t.Fatalf("the job ended by it: %v", err)
		}
	}
}

// joining is a rank that joins meanwhile.
type joining struct {
	b   *TCP
	err error
}

func startJoin(t *testing.T, c Config) <-chan joining {
	return startJoinIn(bounded(t, patience), c)
}

func startJoinIn(ctx context.Context, c Config) <-chan joining {
	out := make(chan joining, 1)
	go func() {
		b, err := Join(ctx, c)
		out <- joining{b, err}
	}()
	return out
}

// Lines of the log of rank 0 while ranks check in.
const (
	countsIn     = "bootstrap: a rank has checked in"
	notesRefusal = "bootstrap: rank 0 notes a connection that was turned down"
	noticesEnd   = "bootstrap: a rank ended during start-up"
)

// logOf returns a log, and a channel that is closed once so many of its lines begin with some of the words.
func logOf(lines int, words ...string) (*slog.Logger, <-chan struct{}) {
	n := &noticer{Handler: slog.DiscardHandler, words: words, noticed: make(chan struct{})}
	n.left.Store(int64(lines))
	return slog.New(n), n.noticed
}

type noticer struct {
	slog.Handler
	words   []string
	left    atomic.Int64
	noticed chan struct{}
}

func (n *noticer) Enabled(context.Context, slog.Level) bool { return true }

func (n *noticer) Handle(_ context.Context, r slog.Record) error {
	if slices.ContainsFunc(n.words, func(w string) bool { return strings.HasPrefix(r.Message, w) }) && n.left.Add(-1) == 0 {
		close(n.noticed)
	}
	return nil
}

// until is a context that ends with a channel.
func until(t testing.TB, done <-chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(bounded(t, patience))
	go func() {
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}()
	return ctx
}

// dieAtStart starts rank 0 of a job and lets its rank 1 check in and die. It returns when
// rank 0 has noticed, with what the other ranks need to join.
func dieAtStart(ctx context.Context, t *testing.T, c Config) (zero <-chan joining, others Config) {
	t.Helper()
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Addr, c.Secret = l.Addr().String(), []byte("a secret of many bytes")
	root := c
	log, noticed := logOf(1, noticesEnd)
	root.Listener, root.Log = l, log
	zero = startJoinIn(ctx, root)
	c.Rank = 1
	first := arrivalConn(t, c, c.Addr)
	if _, err = first.Write(wire.Append(nil, wire.KindCheckIn, 0, entry{rank: 1, port: 9}.append(nil))); err == nil {
		_, err = wire.Read(first) // which ranks are missing: rank 1 is counted in
	}
	_ = first.Close()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-noticed:
	case <-time.After(patience):
		t.Fatal("rank 0 does not notice that rank 1 has ended")
	}
	return zero, c
}

// While ranks are missing, a process whose connection has ended may be replaced, however
// long its successor takes; the job is not complete without one.
func TestRankIsReplacedWhileOthersAreMissing(t *testing.T) {
	t.Parallel()
	zero, c := dieAtStart(bounded(t, patience), t, Config{Size: 3})
	c.Rank = 2
	two := startJoin(t, c)
	select {
	case j := <-zero:
		t.Fatalf("rank 0: %v: expected it to wait for another process of rank 1", j.err)
	case j := <-two:
		t.Fatalf("rank 2: %v: expected it to wait for another process of rank 1", j.err)
	case <-time.After(2 * rejoinGrace):
	}
	c.Rank = 1
	one := startJoin(t, c)
	var ranks []*TCP
	for r, joined := range []<-chan joining{zero, one, two} {
		j := <-joined
		if j.err != nil {
			t.Errorf("rank %d: %v", r, j.err)
		}
		ranks = append(ranks, j.b)
	}
	closeAll(ranks)
}

// A rank that died and was not started again is named at the deadline, rather than one that
// was never there.
func TestRankThatIsNotReplaced(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(bounded(t, patience))
	zero, _ := dieAtStart(ctx, t, Config{Size: 3, late: time.Nanosecond})
	cancel() // the deadline
	if err := wantError((<-zero).err, framework.ErrPeer, 1, "died during start-up", "no other process of rank 1 took its place", "2 ranks are missing: 1-2"); err != nil {
		t.Error(err)
	}
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
	log, noted := logOf(1, notesRefusal)
	ctx := until(t, noted)
	go func() {
		_, err := Join(ctx, Config{Size: 2, Addr: l.Addr().String(), Listener: l, Log: log, late: time.Nanosecond})
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

// The rank 0 of an earlier job may end after it has authenticated and before it answers: the
// rank comes again, and finds that of its own job.
func TestRootOfAnEarlierJobEndsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Size: 2, Addr: l.Addr().String(), Secret: []byte("a secret of many bytes")}
	id, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	c.Rank = 1
	one := startJoin(t, c)
	_ = l.SetDeadline(time.Now().Add(patience))
	for _, reset := range []bool{false, true} { // with and without unread bytes in the old process
		conn, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = (handshake.Party{Identity: id, Size: 2}).Accept(conn, true, nil); err == nil && !reset {
			_, err = wire.Read(conn)
		}
		_ = conn.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = l.SetDeadline(time.Time{})
	c.Rank, c.Listener = 0, l
	zero := startJoin(t, c)
	var ranks []*TCP
	for r, joined := range []<-chan joining{zero, one} {
		j := <-joined
		if j.err != nil {
			t.Errorf("rank %d: %v", r, j.err)
		}
		ranks = append(ranks, j.b)
	}
	closeAll(ranks)
}

// Jobs that come of one id, at one address: a rank that comes early for its own does not get into another, waits while that is
// there, and meets its own behind it.
func TestSuccessors(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(bounded(t, patience), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := func(name string, rank int) Config {
		c := Config{Rank: rank, Size: 2, ID: id.Successor([]byte(name))}
		if rank == 0 {
			f, err := l.File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if c.Listener, err = net.FileListener(f); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	if a, b := id.Successor([]byte("a")), id.Successor([]byte("b")); a.Validate() != nil || a.Job() == b.Job() || a.Job() == id.Job() || a != id.Successor([]byte("a")) {
		t.Errorf("successors %v and %v of %v", a.LogValue(), b.LogValue(), id.LogValue())
	}
	for _, early := range []string{"b", "a"} { // another job, and the same one once more
		type end struct {
			b   *TCP
			err error
		}
		came := make(chan end, 1)
		come := func(c Config) {
			b, err := Join(bounded(t, patience), c)
			came <- end{b, err}
		}
		first := make(chan end, 2)
		for r := range 2 {
			c := at("a", r)
			go func() {
				b, err := Join(bounded(t, patience), c)
				first <- end{b, err}
			}()
			if r == 0 && early == "b" {
				go come(at(early, 1))
			}
		}
		var job []*TCP
		for range 2 {
			e := <-first
			if e.err != nil {
				t.Fatal(e.err)
			}
			if err := e.b.Err(); err != nil {
				t.Fatal(err)
			}
			job = append(job, e.b)
		}
		var leave sync.WaitGroup
		for _, b := range job {
			leave.Go(func() {
				if err := Barrier(bounded(t, patience), b, 1); err != nil {
					t.Error(err)
				}
				_ = b.Close()
			})
		}
		if early == "a" {
			go come(at(early, 1))
		}
		leave.Wait()
		b, err := Join(bounded(t, patience), at(early, 0))
		if err != nil {
			t.Fatal(err)
		}
		e := <-came
		if e.err != nil {
			t.Fatal(e.err)
		}
		_ = e.b.Close()
		_ = b.Close()
	}
}
