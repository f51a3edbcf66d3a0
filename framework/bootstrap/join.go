package bootstrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/failure"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/fdpass"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// neighbors lists the ranks to which a rank of n keeps links: those at the
// distances of the collectives.
func neighbors(rank, n int) []int {
	seen := map[int]bool{rank: true}
	var out []int
	for _, d := range rounds.Distances(n) {
		for _, r := range [2]int{(rank + d) % n, (rank - d + n) % n} {
			if !seen[r] {
				seen[r] = true
				out = append(out, r)
			}
		}
	}
	return out
}

// calls reports which of two neighbors makes the connection: each rank calls
// about as many as call it.
func calls(rank, other, n int) bool {
	up, down := false, false
	for _, d := range rounds.Distances(n) {
		up = up || (rank+d)%n == other
		down = down || (other+d)%n == rank
	}
	if up && down {
		return rank < other
	}
	return up
}

func (t *TCP) join(ctx context.Context) (err error) {
	t.self.rank = uint32(t.party.Rank)
	if t.self.host, err = hostHash(t.cfg.HostID); err != nil {
		return err
	}
	if t.party.Size == 1 {
		t.cfg.closeListener()
		t.table, t.onHost = []entry{t.self}, []bool{true}
		return nil
	}
	if err := t.familyOnHost(); err != nil {
		return err
	}
	if t.fds, err = fdpass.Open(t.party.Key, t.party.Rank, t.cfg.Log); err != nil {
		t.cfg.Log.Warn("bootstrap: descriptors cannot travel", "error", err)
		t.fds = nil
	} else {
		t.self.socket = t.fds.Name
	}
	if t.party.Rank == 0 {
		return t.receive(ctx)
	}
	return t.checkIn(ctx)
}

// receive is the start of rank 0.
func (t *TCP) receive(ctx context.Context) error {
	if err := t.listenAsRoot(ctx); err != nil {
		return err
	}
	at := addrPort(t.listener.Addr())
	if t.cfg.Insecure && !t.party.HasSecret {
		t.cfg.Log.Warn("bootstrap: anybody who reaches this address while ranks check in can join the job, because bootstrap.insecure is set and no rank has a secret", "address", at.String(), "remedy", "set "+EnvSecretFile+" on all ranks")
	}
	t.self.port = at.Port() // at whatever address it was reached
	t.root = at.Addr()
	t.visits = make(chan visit)
	_, _ = rand.Read(t.instance[:]) // never fails
	close(t.known)
	t.lobby = newLobby(t)
	t.work.Go(t.accept)
	t.work.Go(func() { t.lobby.run(ctx) })
	select {
	case <-t.lobby.complete:
	case <-t.fates.Job.Done():
		return t.fates.Job.Cause()
	}
	return t.settleIn(ctx)
}

func (t *TCP) listenAsRoot(ctx context.Context) (err error) {
	addresses := t.cfg.ID.Addresses()
	if l := t.cfg.Listener; l != nil {
		tl, ok := l.(*net.TCPListener)
		if !ok {
			_ = l.Close()
			return fmt.Errorf("%w: listener on %s: expected tcp", framework.ErrInvalid, l.Addr().Network())
		}
		t.listener = tl
		if len(addresses) > 0 && addresses[0].Port() != addrPort(l.Addr()).Port() {
			return fmt.Errorf("%w: the listener has address %s, the unique id has %s", framework.ErrInvalid, l.Addr(), addresses[0])
		}
		if !t.cfg.Family.admitsListener(addrPort(l.Addr()).Addr()) {
			return fmt.Errorf("%w: rank 0 was given a listener at %s: expected an %s address, because bootstrap.family is %s", framework.ErrInvalid, l.Addr(), t.cfg.Family, string(t.cfg.Family))
		}
		return nil
	}
	at := t.cfg.Addr
	switch {
	case len(addresses) == 1:
		at = addresses[0].String()
	case len(addresses) > 1:
		for _, a := range addresses {
			if a.Port() != addresses[0].Port() {
				return fmt.Errorf("%w: unique id with several ports (%v): expected one", framework.ErrInvalid, addresses)
			}
		}
		at = ":" + strconv.Itoa(int(addresses[0].Port()))
	}
	t.listener, err = t.listenInTime(ctx, at)
	if errors.Is(err, syscall.EADDRNOTAVAIL) && t.party.HasSecret {
		// A name that leads here by way of a translator, as a service of a cluster.
		// With a secret it does no harm to listen everywhere.
		if _, port, e := net.SplitHostPort(at); e == nil {
			t.listener, err = listen(ctx, t.cfg.Family, ":"+port)
		}
	}
	return err
}

// listenInTime listens where another job may be ending: this rank waits for that, but for
// no other program.
func (t *TCP) listenInTime(ctx context.Context, at string) (*net.TCPListener, error) {
	var pause backoff
	start := time.Now()
	for {
		l, err := listen(ctx, t.cfg.Family, at)
		if !errors.Is(err, syscall.EADDRINUSE) || len(t.cfg.ID.Addresses()) > 0 {
			return l, err
		}
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		conn, why := t.connect(asked, at, handshake.CheckIn, 0)
		cancel()
		switch {
		case why == nil:
			_ = conn.Close()
			return nil, err
		case errors.Is(why, framework.ErrInvalid) && !busy(why):
			return nil, fmt.Errorf("%w: %w", why, err)
		case !busy(why) && (!errors.Is(why, syscall.ECONNREFUSED) && !dropped(why) || time.Since(start) > askTimeout):
			return nil, err
		}
		if !pause.wait(ctx) {
			return nil, fmt.Errorf("%w: %w: %w", err, why, context.Cause(ctx))
		}
	}
}

// askTimeout is how long whoever listens at the address of rank 0 has to say what it is.
const askTimeout = 2 * time.Second

// checkIn is the start of all other ranks. Where an earlier job ends it is repeated.
func (t *TCP) checkIn(ctx context.Context) error {
	var pause backoff
	for {
		err := t.checkInOnce(ctx)
		if !errors.Is(err, errBusy) {
			return err
		}
		if !pause.wait(ctx) {
			return &framework.Error{Op: "bootstrap", Peer: 0, Err: fmt.Errorf("%w: %w", err, context.Cause(ctx))}
		}
	}
}

// errBusy says that rank 0 is still that of an earlier job.
var errBusy = errors.New("rank 0 is busy")

func (t *TCP) checkInOnce(ctx context.Context) (err error) {
	conn, err := t.findRoot(ctx)
	if err != nil {
		return err
	}
	var done atomic.Bool
	gaveUp := false
	defer func() {
		done.Store(true)
		_ = conn.SetWriteDeadline(time.Now().Add(lastWords))
		switch {
		case err == nil:
			_, _ = conn.Write(wire.Append(nil, wire.KindReady, 0, nil))
		case errors.Is(err, errBusy):
		case gaveUp:
			_, _ = conn.Write(wire.Append(nil, wire.KindGaveUp, 0, nil))
		default:
			n := announcement(0, t.party.Rank, err)
			_, _ = conn.Write(wire.Append(nil, wire.KindNotice, 0, n.encode()))
		}
		_ = conn.CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(lastWords))
	}()
	_ = conn.SetDeadline(time.Time{})
	t.root = addrPort(conn.RemoteAddr()).Addr()
	here := addrPort(conn.LocalAddr()).Addr()
	if t.cfg.Interface != "" {
		if here, err = onInterface(t.cfg.Interface, t.cfg.Family, here); err != nil {
			return err
		}
	}
	if t.listener == nil {
		if t.listener, err = listen(ctx, t.cfg.Family, netip.AddrPortFrom(here, 0).String()); err != nil {
			return err
		}
		t.self.ip, t.self.port = here.WithZone("").As16(), addrPort(t.listener.Addr()).Port()
		t.work.Go(t.accept)
	}
	// Rank 0 may have hung up already; its last words tell more than this error.
	_, _ = conn.Write(wire.Append(nil, wire.KindCheckIn, 0, t.self.append(nil)))
	tables, busy := make(chan []entry, 1), make(chan string, 1)
	t.work.Go(func() {
		defer conn.Close()
		for {
			f, err := wire.Read(conn)
			if err == nil {
				err = t.fromLobby(f, tables, busy)
			}
			if err != nil {
				if !done.Load() && !errors.Is(err, errBusy) {
					t.suspect(0, fmt.Sprintf("it died during start-up (%v)", err))
				}
				return
			}
		}
	})
	select {
	case table := <-tables:
		t.mu.Lock()
		t.table = make([]entry, t.party.Size)
		for _, e := range table {
			t.table[e.rank] = e
		}
		t.mu.Unlock()
	case text := <-busy:
		return fmt.Errorf("%w: %w: %s", framework.ErrPeer, errBusy, text)
	case <-t.fates.Job.Done():
		return t.fates.Job.Cause()
	case <-ctx.Done():
		gaveUp = true
		said := "rank 0 has not said who is missing"
		if w := t.waiting.Load(); w != nil {
			said = *w
		}
		return fmt.Errorf("%w: %s: %w", framework.ErrPeer, said, context.Cause(ctx))
	}
	return t.settleIn(ctx)
}

func (t *TCP) fromLobby(f wire.Frame, tables chan<- []entry, busy chan<- string) error {
	switch f.Kind {
	case wire.KindTable:
		r := wire.Reader{B: f.Body}
		instance := r.Bytes(len(t.instance), "instance of the job")
		if r.Err != nil {
			return r.Err
		}
		table, err := decodeTable(r.B, t.party.Size)
		if err != nil {
			return err
		}
		select {
		case <-t.known:
			return fmt.Errorf("%w: a second table: expected one", framework.ErrPeer)
		default:
		}
		copy(t.instance[:], instance)
		close(t.known)
		tables <- table
		return nil
	case wire.KindBusy:
		select {
		case busy <- string(f.Body):
		default:
		}
		return errBusy // nothing more comes
	case wire.KindWaiting:
		text := string(f.Body)
		t.waiting.Store(&text)
		return nil
	case wire.KindNotice:
		n, err := decodeNotice(f.Body, t.party.Size)
		if err == nil {
			t.pass(n)
		}
		return err
	}
	return fmt.Errorf("%w: message of type %d: expected none here", framework.ErrPeer, f.Kind)
}

// settleIn makes the links and learns about all ranks over them.
func (t *TCP) settleIn(ctx context.Context) error {
	if err := t.meet(ctx); err != nil {
		return err
	}
	all, err := AllGatherBytes(ctx, t, tagTable, t.self.append(nil))
	if err != nil {
		return err
	}
	table := make([]entry, t.party.Size)
	for r, b := range all {
		reader := wire.Reader{B: b}
		if table[r], err = decodeEntry(&reader, t.party.Size); err == nil {
			err = reader.End("entry")
		}
		if err == nil && table[r].rank != uint32(r) {
			err = fmt.Errorf("%w: entry of rank %d: expected rank %d", framework.ErrPeer, table[r].rank, r)
		}
		if err != nil {
			return failure.Named(r, err)
		}
	}
	t.mu.Lock()
	t.table = table
	t.mu.Unlock()
	if err := t.findHostMates(ctx, table); err != nil {
		return err
	}
	t.watchHosts(table)
	return nil
}

// meet makes the links to all neighbors: some call, some are called.
func (t *TCP) meet(ctx context.Context) error {
	near := neighbors(t.party.Rank, t.party.Size)
	failed := make(chan error, len(near))
	for _, r := range near {
		if !calls(t.party.Rank, r, t.party.Size) {
			continue
		}
		at := t.entry(r).addr(t.root)
		t.work.Go(func() {
			conn, err := t.callRank(ctx, at, r)
			if err == nil {
				err = t.adopt(r, conn)
			}
			if err != nil {
				failed <- failure.Named(r, err)
			}
		})
	}
	for {
		t.mu.Lock()
		joined := t.joined
		var absent []int
		for _, r := range near {
			if t.peer(r).out == nil {
				absent = append(absent, r)
			}
		}
		t.mu.Unlock()
		if len(absent) == 0 {
			return nil
		}
		select {
		case <-joined:
		case err := <-failed:
			// If the peer died, rank 0 is about to say so.
			t.await(ctx, 2*lastWords)
			if cause := t.fates.Job.Cause(); cause != nil {
				return cause
			}
			return err
		case <-t.fates.Job.Done():
			return t.fates.Job.Cause()
		case <-ctx.Done():
			return fmt.Errorf("%w: no link: %s: %w", framework.ErrPeer, missingText(absent), context.Cause(ctx))
		}
	}
}

// await waits for the end of the job, for a moment.
func (t *TCP) await(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.fates.Job.Done():
	case <-timer.C:
	case <-ctx.Done():
	case <-t.life.Done():
	}
}
