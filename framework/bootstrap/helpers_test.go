package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// rank is what all bootstraps of this package are.
type rank interface {
	framework.Bootstrap
	Watcher
	SameHoster
	HostRanks() []int
	Stats() Stats
	Close() error
}

var (
	_ rank   = (*Local)(nil)
	_ member = (*Local)(nil)
)

// patience is longer than anything in a test takes, on a machine that does much else as well.
const patience = 3 * time.Minute

// bounded is a context for one test: longer than anything in it should take.
func bounded(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// awaitFailed waits until a rank knows that its job has failed.
func awaitFailed(t testing.TB, b *TCP) {
	t.Helper()
	select {
	case <-b.Failed():
	case <-time.After(patience):
		t.Fatal("it knows nothing of it")
	}
}

// aMoment is a context that ends shortly after somebody has begun to wait for it.
func aMoment(t testing.TB) context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	t.Cleanup(func() { end(nil) })
	return &moment{Context: ctx, end: end}
}

type moment struct {
	context.Context
	once sync.Once
	end  context.CancelCauseFunc
}

func (m *moment) Done() <-chan struct{} {
	m.once.Do(func() {
		time.AfterFunc(20*time.Millisecond, func() { m.end(context.DeadlineExceeded) })
	})
	return m.Context.Done()
}

// each runs f for all ranks at once and reports every error.
func each[B framework.Bootstrap](t testing.TB, ranks []B, f func(b B) error) {
	t.Helper()
	var group sync.WaitGroup
	errs := make([]error, len(ranks))
	for i, b := range ranks {
		group.Go(func() { errs[i] = f(b) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// local makes n ranks that are closed with the test.
func local(t testing.TB, n int) []rank {
	var ranks []rank
	for _, l := range InProcess(n) {
		ranks = append(ranks, l)
		t.Cleanup(func() { _ = l.Close() })
	}
	return ranks
}

// fdShare makes a share with a descriptor whose content is text.
func fdShare(t testing.TB, text string) framework.Share {
	t.Helper()
	f := tempFile(t, text)
	t.Cleanup(func() { _ = f.Close() })
	return framework.Share{Kind: framework.ShareMemFD, FD: f}
}

func tempFile(t testing.TB, text string) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "share")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(s framework.Share) (string, error) {
	if s.FD == nil {
		return "", errors.New("no descriptor")
	}
	b := make([]byte, 64)
	n, err := s.FD.ReadAt(b, 0)
	if n == 0 {
		return "", err
	}
	return string(b[:n]), nil
}

// openFDs counts the open descriptors of this process.
func openFDs(t testing.TB) int {
	t.Helper()
	// The first socket makes the runtime open descriptors of its own, for good.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// openFDsOf counts the open descriptors of one file. Descriptors that earlier tests left to
// finalizers do not change this count, as they change openFDs.
func openFDsOf(t testing.TB, f *os.File) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && link == f.Name() {
			n++
		}
	}
	return n
}

// settledFDs is openFDs once the count rests: what was closed a moment ago, and what
// earlier tests left to finalizers, is gone by then.
func settledFDs(t testing.TB) int {
	t.Helper()
	const rest = 400 * time.Millisecond // longer than a connection lingers: lastWords
	n, since := openFDs(t), time.Now()
	for end := since.Add(patience); time.Now().Before(end); {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		if now := openFDs(t); now != n {
			n, since = now, time.Now()
		} else if time.Since(since) > rest {
			return n
		}
	}
	t.Fatalf("the number of open descriptors, %d, does not come to rest", n)
	return 0
}

// wantError checks the class and the culprit of an error, and that its text says
// what it should.
func wantError(err, class error, peer int, words ...string) error {
	switch {
	case err == nil:
		return fmt.Errorf("no error: expected %v", class)
	case !errors.Is(err, class):
		return fmt.Errorf("error %q: expected class %v", err, class)
	case framework.PeerOf(err) != peer:
		return fmt.Errorf("error %q blames rank %d: expected %d", err, framework.PeerOf(err), peer)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("error %q does not say %q", err, w)
		}
	}
	return nil
}
