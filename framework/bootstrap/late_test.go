package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/internal/promise"
)

func TestWorldSizesDisagree(t *testing.T) {
	_, errs := tryJoin(t, 4, func(c *Config) {
		c.late = patience // rank 0 stays until all know
		if c.Rank == 2 {
			c.Size = 5
		}
	})
	if err := wantError(errs[2], framework.ErrInvalid, 0, "job of 4 ranks", "expects 5"); err != nil {
		t.Error(err)
	}
	for _, r := range []int{0, 1, 3} {
		if err := wantError(errs[r], framework.ErrInvalid, 2, "job of 5 ranks", "expects 4"); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// failing starts a rank 0 that expects size ranks, and ends its job by a rank 2
// that expects one more. It returns what rank 0 will report.
func failing(t *testing.T, size int, late time.Duration) (Config, <-chan error) {
	t.Helper()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	root := make(chan error, 1)
	go func() {
		_, err := Join(context.Background(), Config{Size: size, ID: id, Listener: l, late: late})
		root <- err
	}()
	_, err = Join(bounded(t, patience), Config{Rank: 2, Size: size + 1, ID: id})
	if err := wantError(err, framework.ErrInvalid, 0, fmt.Sprintf("job of %d ranks", size)); err != nil {
		t.Error(err)
	}
	return Config{Size: size, ID: id}, root
}

// rootFailed waits for what rank 0 of failing reports.
func rootFailed(t *testing.T, root <-chan error) {
	t.Helper()
	select {
	case err := <-root:
		if err := wantError(err, framework.ErrInvalid, 2, "expects"); err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("rank 0 still waits after ", patience)
	}
}

// Ranks that come when the job has failed already learn why, and rank 0 leaves as
// soon as all know: here long before its bound of minutes.
func TestLateRanksLearnTheReason(t *testing.T) {
	t.Parallel()
	c, root := failing(t, 5, patience)
	for _, r := range []int{1, 3, 4} {
		select {
		case err := <-root:
			t.Fatalf("rank 0 left before rank %d knew: %v", r, err)
		default:
		}
		c.Rank = r
		_, err := Join(bounded(t, patience), c)
		if err := wantError(err, framework.ErrInvalid, 2, "job of 6 ranks", "expects 5"); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	rootFailed(t, root)
}

// unaware is a context whose deadline has passed, and that does not know it yet.
type unaware struct{ context.Context }

func (unaware) Deadline() (time.Time, bool) { return time.Now(), true }

func TestOver(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if !over(unaware{context.Background()}) || !over(canceled) || over(context.Background()) || over(bounded(t, time.Minute)) {
		t.Error("the time is up where a deadline has passed, or the context has ended, and nowhere else")
	}
}

// A rank with a mistake of its own learns that one, and counts as notified.
func TestLateRanksWithOtherMistakes(t *testing.T) {
	t.Parallel()
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := Config{Size: 4, Addr: l.Addr().String(), Secret: []byte("a secret of many bytes")}
	root := make(chan error, 1)
	go func() {
		c := base
		c.Listener, c.late = l, patience
		_, err := Join(context.Background(), c)
		root <- err
	}()
	for _, late := range []struct {
		edit func(c *Config)
		peer int
		text string
	}{
		{func(c *Config) { c.Rank, c.Size = 2, 3 }, 0, "job of 4 ranks"}, // ends it
		{func(c *Config) { c.Rank, c.Job, c.Timeout = 1, "another", 5*time.Second }, 0, "another job listens there"},
		{func(c *Config) { c.Rank, c.Secret = 3, []byte("another secret of bytes") }, 0, "wrong secret"},
		{func(c *Config) { c.Rank = 1 }, 2, "expects"}, // the other job's rank 1 did not count
	} {
		c := base
		late.edit(&c)
		_, err := Join(bounded(t, patience), c)
		if err := wantError(err, framework.ErrInvalid, late.peer, late.text); err != nil {
			t.Error(err)
		}
	}
	rootFailed(t, root)
}

// A rank that never comes does not hold rank 0 for longer than its bound, and no caller is held
// that does not want to wait.
func TestRootDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	start, watch := time.Now(), promise.Begin()
	c, root := failing(t, 4, 0)
	rootFailed(t, root)
	if took := time.Since(start); took < lateTimeout {
		t.Errorf("rank 0 reported after %v, expected %v at least", took, lateTimeout)
	}
	if err := watch.Kept(lateTimeout + 10*time.Second); err != nil {
		t.Error(err)
	}
	conn, err := net.Dial("tcp", c.ID.Addresses()[0].String())
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("rank 0 has returned and its address still answers: %v, %v", conn, err)
	}

	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Config{Size: 4, ID: id, Listener: l, late: patience})
		failed <- err
	}()
	for _, c := range []Config{{Rank: 2, Size: 3, ID: id}, {Rank: 1, Size: 4, ID: id}} { // rank 3 never comes
		_, err := Join(bounded(t, patience), c)
		if !errors.Is(err, framework.ErrInvalid) { // the second one has heard of the first
			t.Errorf("rank %d of %d: %v, expected ErrInvalid", c.Rank, c.Size, err)
		}
	}
	cancel() // of a Join that would stay for minutes
	rootFailed(t, failed)
}

// The same with processes that nobody supervises: rank 0 exits when Join fails, the
// late one is started when the job has failed already.
func TestLateProcessLearnsTheReason(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	host, port, _ := net.SplitHostPort(addr)
	meet := []string{EnvUniqueID + "=", "MASTER_ADDR=" + host, "MASTER_PORT=" + port}
	root := start(t, "wait", UniqueID{}, 0, 3, meet...)
	wrong := start(t, "wait", UniqueID{}, 2, 4, meet...)
	if got := wrong.expect("failed"); got.Peer != 0 || !strings.Contains(got.Error, "job of 3 ranks") {
		t.Errorf("%+v, expected to blame rank 0, of a job of 3 ranks", got)
	}
	late := start(t, "wait", UniqueID{}, 1, 3, meet...)
	for name, p := range map[string]*process{"rank 0": root, "the late rank": late} {
		if got := p.expect("failed"); got.Peer != 2 || !strings.Contains(got.Error, "job of 4 ranks") {
			t.Errorf("%s: %+v, expected to blame rank 2, of a job of 4 ranks", name, got)
		}
	}
}

// freeAddr is an address where nobody listens. Another process may take it, so it
// is for tests that would notice.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := listen(context.Background(), AnyFamily, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// Where rank 0 might yet start a rank waits, and says in the end for whom and where.
func TestRootDoesNotAnswer(t *testing.T) {
	addr := freeAddr(t)
	_, err := Join(context.Background(), Config{Rank: 1, Size: 2, Addr: addr, Timeout: 2 * time.Second})
	if err := wantError(err, framework.ErrPeer, 0, "rank 0 does not answer", "listen at "+addr, "this rank has waited ", "refused"); err != nil {
		t.Error(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, expected the deadline as a cause", err)
	}
}

// Where rank 0 listened before the id was given out, a refused connection is final.
func TestRootHasLeft(t *testing.T) {
	t.Parallel()
	c, root := failing(t, 4, time.Nanosecond)
	rootFailed(t, root)
	for name, id := range map[string]UniqueID{"bytes": c.ID, "text": parsed(t, c.ID)} {
		c.ID, c.Rank = id, 1
		watch := promise.Begin()
		_, err := Join(bounded(t, patience), c)
		if err := wantError(err, framework.ErrPeer, 0, "rank 0 does not listen at "+c.ID.Addresses()[0].String()+" any more", "has failed"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := watch.Kept(10 * time.Second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of several addresses of rank 0 some may belong to networks that this host does not have.
func TestRootHasLeftAllAddresses(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	at := id.Addresses()[0]
	noRoute := netip.MustParseAddrPort("127.255.255.255:9") // the kernel does not connect to a broadcast address
	if id, err = NewUniqueID(at, noRoute); err != nil {
		t.Fatal(err)
	}
	_, err = Join(bounded(t, patience), Config{Rank: 1, Size: 2, ID: id.Listening()})
	if err := wantError(err, framework.ErrPeer, 0, "rank 0 does not listen at "+at.String()+" or "+noRoute.String()+" any more", "connection refused"); err != nil {
		t.Error(err)
	}
	// One that was never promised to listen may only be late.
	_, err = Join(bounded(t, 300*time.Millisecond), Config{Rank: 1, Size: 2, ID: id})
	if err := wantError(err, framework.ErrPeer, 0, "rank 0 does not answer"); err != nil {
		t.Error(err)
	}
}

func TestAddressesOfOtherNetworks(t *testing.T) {
	for number, want := range map[syscall.Errno]bool{
		syscall.EAFNOSUPPORT: true, syscall.EADDRNOTAVAIL: true, syscall.ENETUNREACH: true,
		syscall.ECONNREFUSED: false, syscall.ETIMEDOUT: false, syscall.EHOSTUNREACH: false,
	} {
		err := fmt.Errorf("cannot connect: %w", &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", number)})
		if unreachable(err) != want {
			t.Errorf("%v: unreachable %v, expected %v", err, !want, want)
		}
	}
}

func parsed(t *testing.T, id UniqueID) UniqueID {
	t.Helper()
	got, err := ParseUniqueID(id.String())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A version that is not known says nothing about the rank behind it.
func TestUnknownVersionIsReported(t *testing.T) {
	t.Parallel()
	l, id, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(append([]byte(handshake.Magic), 99, 0)); err != nil {
		t.Fatal(err)
	}
	log, noted := logOf(1, notesRefusal)
	_, err = Join(until(t, noted), Config{Size: 2, ID: id, Listener: l, Log: log, late: time.Nanosecond})
	if err := wantError(err, framework.ErrPeer, 1, "rank 1 is missing", "a connection from 127.0.0.1 was turned down", "version 99"); err != nil {
		t.Error(err)
	}
}
