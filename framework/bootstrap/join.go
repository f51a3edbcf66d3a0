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
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/notice"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/rounds"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

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

// startup brings a rank into its job.
type startup struct {
	t       *TCP
	waiting atomic.Pointer[string] // the words of rank 0 on the ranks that are missing
}

func (s *startup) join(ctx context.Context) (err error) {
	s.t.self.rank = uint32(s.t.party.Rank)
	if s.t.self.host, err = hostHash(s.t.cfg.HostID); err != nil {
		return err
	}
	if s.t.party.Size == 1 {
		s.t.cfg.closeListener()
		s.t.table, s.t.onHost = []entry{s.t.self}, []bool{true}
		return nil
	}
	if err := s.t.caller.familyOnHost(); err != nil {
		return err
	}
	if err := s.t.caller.meet(ctx); err != nil {
		return err
	}
	if s.t.fds, err = fdpass.Open(s.t.party.Key, s.t.party.Rank, s.t.cfg.Log); err != nil {
		s.t.cfg.Log.Warn("bootstrap: descriptors cannot travel", "error", err)
		s.t.fds = nil
	} else {
		s.t.self.socket = s.t.fds.Name
	}
	if s.t.party.Rank == 0 {
		return s.receive(ctx)
	}
	return s.checkIn(ctx)
}

// receive is the start of rank 0.
func (s *startup) receive(ctx context.Context) (err error) {
	if s.t.listener, err = s.t.caller.listenAsRoot(ctx); err != nil {
		return err
	}
	at := addrPort(s.t.listener.Addr())
	if s.t.cfg.Insecure && !s.t.party.HasSecret {
		s.t.cfg.Log.Warn("bootstrap: any process that reaches this address while ranks check in can join the job, because bootstrap.insecure is set and no rank has a secret", "address", at.String(), "remedy", "set "+EnvSecretFile+" on all ranks")
	}
	s.t.self.port = at.Port() // at whatever address it was reached
	s.t.root = at.Addr()
	var instance [16]byte
	_, _ = rand.Read(instance[:]) // never fails
	s.t.instance.set(instance)
	s.t.rendezvous = newRendezvous(s.t)
	s.t.work.Go(s.t.newAcceptor().accept)
	s.t.work.Go(func() { s.t.rendezvous.run(ctx) })
	select {
	case <-s.t.rendezvous.complete:
	case <-s.t.failures.Job.Done():
		return s.t.failures.Job.Cause()
	}
	return s.settleIn(ctx)
}

func (c *caller) listenAsRoot(ctx context.Context) (l *net.TCPListener, err error) {
	addresses := c.cfg.ID.Addresses()
	if given := c.cfg.Listener; given != nil {
		l, ok := given.(*net.TCPListener)
		if !ok {
			_ = given.Close()
			return nil, fmt.Errorf("%w: listener on %s: expected tcp", framework.ErrInvalid, given.Addr().Network())
		}
		if len(addresses) > 0 && addresses[0].Port() != addrPort(l.Addr()).Port() {
			return l, fmt.Errorf("%w: the listener has address %s, the unique id has %s", framework.ErrInvalid, l.Addr(), addresses[0])
		}
		if !c.cfg.Family.admitsListener(addrPort(l.Addr()).Addr()) {
			return l, fmt.Errorf("%w: rank 0 was given a listener at %s: expected an %s address, because bootstrap.family is %s", framework.ErrInvalid, l.Addr(), c.cfg.Family, string(c.cfg.Family))
		}
		return l, nil
	}
	at := c.cfg.Addr
	switch {
	case len(addresses) == 1:
		at = addresses[0].String()
	case len(addresses) > 1:
		for _, a := range addresses {
			if a.Port() != addresses[0].Port() {
				return nil, fmt.Errorf("%w: unique id with several ports (%v): expected one", framework.ErrInvalid, addresses)
			}
		}
		at = ":" + strconv.Itoa(int(addresses[0].Port()))
	}
	l, err = c.listenInTime(ctx, at)
	if errors.Is(err, syscall.EADDRNOTAVAIL) && c.party.HasSecret {
		// A name that leads here by way of a translator, as a service of a cluster.
		// With a secret it does no harm to listen everywhere.
		if _, port, e := net.SplitHostPort(at); e == nil {
			l, err = listen(ctx, c.cfg.Family, ":"+port)
		}
	}
	return l, err
}

// listenInTime listens where another job may be ending: this rank waits for that, but for
// no other program.
func (c *caller) listenInTime(ctx context.Context, at string) (*net.TCPListener, error) {
	var pause backoff
	start := time.Now()
	for {
		l, err := c.listen(ctx, at)
		if !errors.Is(err, syscall.EADDRINUSE) || len(c.cfg.ID.Addresses()) > 0 {
			return l, err
		}
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		conn, why := c.connect(asked, at, handshake.CheckIn, 0)
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

// checkIn is the start of all other ranks. Where an earlier job ends it is repeated.
func (s *startup) checkIn(ctx context.Context) error {
	var pause backoff
	for {
		err := s.checkInOnce(ctx)
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

// checkInOnce finds rank 0, checks in, and goes on with the table of all ranks that it answers.
func (s *startup) checkInOnce(ctx context.Context) error {
	conn, err := s.t.caller.findRoot(ctx)
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Time{})
	c := &checkingIn{startup: s, conn: conn, tables: make(chan []entry, 1), busy: make(chan string, 1)}
	err = c.perform(ctx)
	c.end(err)
	return err
}

// checkingIn is the connection of a rank to rank 0 while it waits for the table.
type checkingIn struct {
	*startup
	conn   *net.TCPConn
	tables chan []entry
	busy   chan string // why this is not the rank 0 of this job
	gaveUp bool        // no table came in time
	done   atomic.Bool // the end of the connection means nothing any more
}

func (c *checkingIn) perform(ctx context.Context) error {
	err := c.listen(ctx)
	c.t.work.Go(c.read) // also where listening failed: it closes the connection
	if err != nil {
		return err
	}
	// Rank 0 may have hung up already; its last words tell more than this error.
	_, _ = c.conn.Write(wire.Append(nil, wire.KindCheckIn, 0, c.t.self.append(nil)))
	if err := c.await(ctx); err != nil {
		return err
	}
	return c.settleIn(ctx)
}

// listen accepts ranks at the address by which this one reaches rank 0, or on the interface of the configuration.
func (c *checkingIn) listen(ctx context.Context) (err error) {
	c.t.root = addrPort(c.conn.RemoteAddr()).Addr()
	here := addrPort(c.conn.LocalAddr()).Addr()
	if c.t.cfg.Interface != "" {
		if here, err = onInterface(c.t.cfg.Interface, c.t.cfg.Family, here); err != nil {
			return err
		}
	}
	if c.t.listener != nil {
		return nil
	}
	if c.t.listener, err = c.t.caller.listen(ctx, netip.AddrPortFrom(here, 0).String()); err != nil {
		return err
	}
	c.t.self.ip, c.t.self.port = here.WithZone("").As16(), addrPort(c.t.listener.Addr()).Port()
	c.t.work.Go(c.t.newAcceptor().accept)
	return nil
}

// await waits for the table.
func (c *checkingIn) await(ctx context.Context) error {
	select {
	case table := <-c.tables:
		c.t.mu.Lock()
		defer c.t.mu.Unlock()
		c.t.table = make([]entry, c.t.party.Size)
		for _, e := range table {
			c.t.table[e.rank] = e
		}
		return nil
	case text := <-c.busy:
		return fmt.Errorf("%w: %w: %s", framework.ErrPeer, errBusy, text)
	case <-c.t.failures.Job.Done():
		return c.t.failures.Job.Cause()
	case <-ctx.Done():
		c.gaveUp = true
		said := "rank 0 has not named the missing ranks"
		if w := c.waiting.Load(); w != nil {
			said = *w
		}
		return fmt.Errorf("%w: %s: %w", framework.ErrPeer, said, context.Cause(ctx))
	}
}

// end says to rank 0 how the start ended here, and bounds the wait for what it still says. Its frame fits into the socket's
// buffer, so the bound of the write is for a rank 0 that does not read; a rank that is late to write must not count as dead.
func (c *checkingIn) end(err error) {
	c.done.Store(true)
	_ = c.conn.SetWriteDeadline(time.Now().Add(handshakeTimeout))
	switch {
	case err == nil:
		_, _ = c.conn.Write(wire.Append(nil, wire.KindReady, 0, nil))
	case errors.Is(err, errBusy):
	case c.gaveUp:
		_, _ = c.conn.Write(wire.Append(nil, wire.KindGaveUp, 0, nil))
	default:
		n := notice.Announcement(0, c.t.party.Rank, err)
		_, _ = c.conn.Write(wire.Append(nil, wire.KindNotice, 0, n.Encode()))
	}
	_ = c.conn.CloseWrite()
	_ = c.conn.SetReadDeadline(time.Now().Add(lastWords))
}

// read hears rank 0 to the end of the connection.
func (c *checkingIn) read() {
	defer c.conn.Close()
	for heard := false; ; heard = true {
		f, err := wire.Read(c.conn)
		if !heard && dropped(err) {
			// Rank 0 of this job answers a rank that checks in at once.
			c.busy <- "it has ended without an answer"
			return
		}
		if err == nil {
			err = c.hear(f)
		}
		if err != nil {
			if !c.done.Load() && !errors.Is(err, errBusy) {
				c.t.suspect(0, fmt.Sprintf("it died during start-up (%v)", err))
			}
			return
		}
	}
}

// hear takes in one message of rank 0.
func (c *checkingIn) hear(f wire.Frame) error {
	switch f.Kind {
	case wire.KindTable:
		r := wire.Reader{B: f.Body}
		instance := r.Bytes(16, "instance of the job")
		if r.Err != nil {
			return r.Err
		}
		table, err := decodeTable(r.B, c.t.party.Size)
		if err != nil {
			return err
		}
		select {
		case <-c.t.instance.known:
			return fmt.Errorf("%w: a second table: expected one", framework.ErrPeer)
		default:
		}
		c.t.instance.set([16]byte(instance))
		c.tables <- table
		return nil
	case wire.KindBusy:
		select {
		case c.busy <- string(f.Body):
		default:
		}
		return errBusy // nothing more comes
	case wire.KindWaiting:
		text := string(f.Body)
		c.waiting.Store(&text)
		return nil
	case wire.KindNotice:
		n, err := notice.Decode(f.Body, c.t.party.Size)
		if err == nil {
			c.t.pass(n)
		}
		return err
	}
	return fmt.Errorf("%w: message of type %d: expected none here", framework.ErrPeer, f.Kind)
}

// settleIn makes the links and learns about all ranks over them.
func (s *startup) settleIn(ctx context.Context) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	all, err := AllGatherBytes(ctx, s.t, tagTable, s.t.self.append(nil))
	if err != nil {
		return err
	}
	table := make([]entry, s.t.party.Size)
	for r, b := range all {
		reader := wire.Reader{B: b}
		if table[r], err = decodeEntry(&reader, s.t.party.Size); err == nil {
			err = reader.End("entry")
		}
		if err == nil && table[r].rank != uint32(r) {
			err = fmt.Errorf("%w: entry of rank %d: expected rank %d", framework.ErrPeer, table[r].rank, r)
		}
		if err != nil {
			return failure.Named(r, err)
		}
	}
	s.t.mu.Lock()
	s.t.table = table
	s.t.mu.Unlock()
	if err := s.findHostMates(ctx, table); err != nil {
		return err
	}
	s.watchHosts(table)
	return nil
}

// meet makes the links to all neighbors: some call, some are called.
func (s *startup) meet(ctx context.Context) error {
	neighborRanks := neighbors(s.t.party.Rank, s.t.party.Size)
	failed := make(chan error, len(neighborRanks))
	for _, r := range neighborRanks {
		if !calls(s.t.party.Rank, r, s.t.party.Size) {
			continue
		}
		at := s.t.entry(r).addr(s.t.root)
		s.t.work.Go(func() {
			conn, err := s.t.caller.callRank(ctx, at, r)
			if err == nil {
				err = s.t.adopt(r, conn)
			}
			if err != nil {
				failed <- failure.Named(r, err)
			}
		})
	}
	for {
		s.t.mu.Lock()
		joined := s.t.joined
		var absent []int
		for _, r := range neighborRanks {
			if s.t.peer(r).out == nil {
				absent = append(absent, r)
			}
		}
		s.t.mu.Unlock()
		if len(absent) == 0 {
			return nil
		}
		select {
		case <-joined:
		case err := <-failed:
			// If the peer died, rank 0 is about to say so.
			s.t.await(ctx, 2*lastWords)
			if cause := s.t.failures.Job.Cause(); cause != nil {
				return cause
			}
			return err
		case <-s.t.failures.Job.Done():
			return s.t.failures.Job.Cause()
		case <-ctx.Done():
			return fmt.Errorf("%w: no link: %s: %w", framework.ErrPeer, missingText(absent), context.Cause(ctx))
		}
	}
}
