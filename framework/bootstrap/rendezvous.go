package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/handshake"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/notice"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap/internal/wire"
)

// visit is what came of a connection to rank 0 while ranks check in.
type visit struct {
	rank     int // as claimed; framework.NoPeer if it did not say
	conn     *net.TCPConn
	proved   bool // the claim is proved
	again    bool // the process that was here with this rank has had time to end
	notified bool // it knows why it was turned down
	from     netip.Addr
	err      error
}

// refused are connections that were turned down. They do not end the wait: any process that reaches
// the port could end a job otherwise.
type refused struct {
	count int
	from  netip.Addr // of the last one, as is err
	err   error
}

// said is what an error tells of them.
func (r *refused) said(rank int) string {
	claim := ""
	if rank != framework.NoPeer {
		claim = fmt.Sprintf(" that claimed to be rank %d", rank)
	}
	if r.count == 1 {
		return fmt.Sprintf("; a connection from %s%s was turned down: %v", r.from, claim, r.err)
	}
	return fmt.Sprintf("; %d connections%s were turned down, the last one from %s: %v", r.count, claim, r.from, r.err)
}

// visit hands a visit to the rendezvous, or turns it away when that is closed.
func (h *rendezvous) visit(v visit) {
	select {
	case h.visits <- v:
	case <-h.closed:
		if v.conn != nil {
			h.turnAway(v, h.informed(v.rank))
		}
	}
}

// turnAway tells a rank why it cannot check in any more. The same rank of the next job may
// be here before the processes of this one have ended: it is to come again.
func (h *rendezvous) turnAway(v visit, informed bool) {
	if h.t.verdict.Load() != nil && informed || h.t.verdict.Load() == nil && h.hasEnded(v.rank) {
		_, _ = v.conn.Write(wire.Append(nil, wire.KindBusy, 0, []byte("an earlier job has not ended there")))
		hangUp(v.conn)
		return
	}
	n := notice.Notice{Origin: 0, Culprit: v.rank, Class: framework.ErrInvalid, Text: fmt.Sprintf("rank %d checked in after all ranks were there: expected one process for each rank, which joins its job once", v.rank)}
	if ended := h.t.verdict.Load(); ended != nil {
		n = *ended
	}
	_, _ = v.conn.Write(wire.Append(nil, wire.KindNotice, 0, n.Encode()))
	hangUp(v.conn)
}

// hasEnded reports whether the process that was a rank of this job has ended or left, as one
// that starts again has: its end may be on its way here.
func (h *rendezvous) hasEnded(rank int) bool {
	ctx, cancel := context.WithTimeout(h.t.life, 2*rejoinGrace)
	defer cancel()
	l, err := h.t.linkTo(ctx, rank)
	if err != nil { // it has left, cannot be called, or the job ends
		return true
	}
	timer := time.NewTimer(rejoinGrace)
	defer timer.Stop()
	select {
	case <-l.Ended:
	case <-h.t.inbox.Departure(rank):
	case <-h.t.failures.Job.Done():
	case <-h.t.life.Done():
	case <-timer.C:
		return h.t.isClosing()
	}
	return true
}

// rejoinGrace is how long the end of a process may take to get here behind its successor.
const rejoinGrace = 300 * time.Millisecond

// rendezvous is where rank 0 waits for the others. It stays open until every rank has
// its links: until then it is the only place that hears of a failure of any of them.
type rendezvous struct {
	t        *TCP
	arrivals map[int]*arrival
	refused  map[int]*refused // by claimed rank
	notified map[int]bool     // ranks that know why they were turned down
	visits   chan visit       // ranks that check in
	events   chan arrivalEvent
	complete chan struct{} // closed when all have checked in
	closed   chan struct{} // closed with the rendezvous
}

// arrival is a rank that has checked in, or is about to.
type arrival struct {
	rank    int
	conn    *net.TCPConn
	entry   entry
	present bool
	ready   bool
	gaveUp  bool
	ended   chan struct{} // closed when its connection has ended
	why     error         // of that
}

// here reports whether a rank has checked in and not been lost.
func (g *arrival) here() bool { return g != nil && g.present && (g.gaveUp || g.lost() == nil) }

// lost returns why the connection of a rank has ended, nil if it has not.
func (g *arrival) lost() error {
	select {
	case <-g.ended:
		return g.why
	default:
		return nil
	}
}

type arrivalEvent struct {
	*arrival
	frame wire.Frame
	err   error
	late  bool // no process has taken its place in time
}

func newRendezvous(t *TCP) *rendezvous {
	return &rendezvous{
		t: t, arrivals: map[int]*arrival{}, refused: map[int]*refused{}, notified: map[int]bool{}, events: make(chan arrivalEvent), visits: make(chan visit),
		complete: make(chan struct{}), closed: make(chan struct{}),
	}
}

// run collects the ranks until ctx, then watches over them.
func (h *rendezvous) run(ctx context.Context) {
	defer close(h.closed)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	waiting := ctx.Done()
	overall := time.NewTimer(2 * h.t.cfg.Timeout) // for arrivals that never get ready
	defer overall.Stop()
	for ready := 0; ready < h.t.party.Size-1; {
		select {
		case v := <-h.visits:
			h.enter(v)
		case e := <-h.events:
			h.handle(e, &ready)
		case <-tick.C:
			h.notifyAll(wire.KindWaiting, []byte(missingText(h.missing())))
		case <-waiting:
			if missing := h.missing(); len(missing) > 0 {
				h.fail(h.absence(missing, context.Cause(ctx)))
			}
			waiting = nil
		case <-overall.C:
			h.disconnectAll()
			return
		case <-h.t.failures.Job.Done():
			h.disconnectAll()
			h.explain()
			return
		case <-h.t.life.Done():
			h.disconnectAll()
			return
		}
	}
	h.disconnectAll()
}

func (h *rendezvous) fail(n notice.Notice) { h.t.pass(n) }

// disconnectAll ends all connections of the rendezvous, with the reason if there is one.
func (h *rendezvous) disconnectAll() {
	if n := h.t.verdict.Load(); n != nil {
		for _, g := range h.arrivals { // also those that have not said which rank they are
			h.write(g, wire.KindNotice, n.Encode())
		}
	}
	for _, g := range h.arrivals {
		h.t.work.Go(func() { hangUp(g.conn) })
	}
}

// enter begins to read from a rank that has proved itself.
func (h *rendezvous) enter(v visit) {
	if v.notified && v.rank > 0 && v.rank < h.t.party.Size {
		h.notified[v.rank] = true
	}
	if v.conn == nil {
		if v.proved && v.rank < h.t.party.Size {
			h.fail(notice.Notice{Culprit: v.rank, Class: framework.ErrInvalid, Text: v.err.Error()})
		} else if v.proved {
			h.fail(notice.Notice{Culprit: framework.NoPeer, Class: framework.ErrInvalid, Text: v.err.Error()})
		} else {
			h.refuse(v)
		}
		return
	}
	if h.arrivals[v.rank] != nil {
		if len(h.missing()) == 0 { // the job has its ranks and begins: a straggler does not end it
			h.t.work.Go(func() { h.turnAway(v, true) })
			return
		}
		if h.replaces(v) {
			return
		}
		n := notice.Notice{Culprit: v.rank, Class: framework.ErrInvalid, Text: fmt.Sprintf("rank %d checked in twice: two processes were started with the same rank", v.rank)}
		h.fail(n)
		h.write(&arrival{conn: v.conn}, wire.KindNotice, n.Encode())
		h.t.work.Go(func() { hangUp(v.conn) })
		return
	}
	h.admit(v)
}

// replaces lets a process that starts again take the place of the one before, whose
// connection has ended or is about to. It reports false if that one lives.
func (h *rendezvous) replaces(v visit) bool {
	old := h.arrivals[v.rank]
	if old.lost() != nil {
		_ = old.conn.Close()
		h.admit(v)
		return true
	}
	if v.again {
		return false
	}
	h.t.work.Go(func() {
		timer := time.NewTimer(rejoinGrace)
		defer timer.Stop()
		select {
		case <-old.ended:
		case <-timer.C:
		case <-h.closed:
		}
		v.again = true
		h.visit(v)
	})
	return true
}

func (h *rendezvous) admit(v visit) {
	g := &arrival{rank: v.rank, conn: v.conn, ended: make(chan struct{})}
	h.arrivals[v.rank] = g
	_ = v.conn.SetDeadline(time.Time{})
	h.t.work.Go(func() {
		for {
			f, err := wire.Read(g.conn)
			if err != nil {
				g.why = err
				close(g.ended)
			}
			select {
			case h.events <- arrivalEvent{arrival: g, frame: f, err: err}:
			case <-h.closed:
				return
			}
			if err != nil {
				return
			}
		}
	})
}

// refuse takes note of a connection that was turned down.
func (h *rendezvous) refuse(v visit) {
	r := h.refused[v.rank]
	if r == nil {
		if len(h.refused) == 64 {
			return
		}
		r = new(refused)
		h.refused[v.rank] = r
	}
	r.count++
	r.from, r.err = v.from, v.err
	h.t.cfg.Log.Debug("bootstrap: rank 0 notes a connection that was turned down", "claims", v.rank, "error", v.err)
}

// loseArrival takes note of a rank that died. In a job that has all ranks that is its end. Before,
// another process of the rank may take its place: at an address until the deadline. The
// processes of a unique id are started once, so there it is the end of the job unless the
// successor is on its way.
func (h *rendezvous) loseArrival(e arrivalEvent) {
	switch {
	case h.arrivals[e.rank] != e.arrival:
	case len(h.missing()) == 0:
		h.t.suspect(e.rank, diedAtStart(e.err))
	case e.late:
		h.fail(notice.Notice{Culprit: e.rank, Text: diedAtStart(e.err)})
	case len(h.t.cfg.ID.Addresses()) == 0:
		h.t.cfg.Log.Warn("bootstrap: a rank ended during start-up: another process may take its place while others are missing", "rank", e.rank, "error", e.err)
	default:
		e.late = true
		h.t.after(rejoinGrace, func() {
			select {
			case h.events <- e:
			case <-h.closed:
			}
		})
	}
}

// diedAtStart is what an error says of a rank whose connection ended.
func diedAtStart(err error) string { return fmt.Sprintf("it died during start-up (%v)", err) }

func (h *rendezvous) handle(e arrivalEvent, ready *int) {
	if e.err != nil {
		if !e.ready {
			h.loseArrival(e)
		}
		return
	}
	var err error
	switch {
	case e.frame.Kind == wire.KindCheckIn && !e.present:
		r := wire.Reader{B: e.frame.Body}
		if e.entry, err = decodeEntry(&r, h.t.party.Size); err == nil {
			err = r.End("check-in")
		}
		if err == nil && e.entry.rank != uint32(e.rank) {
			err = fmt.Errorf("%w: it checked in as rank %d", framework.ErrPeer, e.entry.rank)
		}
		if err == nil {
			h.welcome(e.arrival)
		}
	case e.frame.Kind == wire.KindReady && e.present && !e.ready:
		e.ready = true
		*ready++
	case e.frame.Kind == wire.KindGaveUp && len(h.missing()) > 0:
		// Not the one whose patience ended first is to blame.
		e.gaveUp = true
		h.fail(h.absence(h.missing(), fmt.Errorf("rank %d does not wait any longer", e.rank)))
	case e.frame.Kind == wire.KindNotice:
		var n notice.Notice
		if n, err = notice.Decode(e.frame.Body, h.t.party.Size); err == nil {
			h.fail(n)
		}
	default:
		err = fmt.Errorf("%w: message of type %d: expected none here", framework.ErrPeer, e.frame.Kind)
	}
	if err != nil {
		h.fail(notice.Notice{Culprit: e.rank, Text: err.Error()})
	}
}

// welcome counts a rank in. With the last one, all learn the addresses of their neighbors.
func (h *rendezvous) welcome(g *arrival) {
	g.present = true
	h.t.cfg.Log.Debug("bootstrap: a rank has checked in", "rank", g.rank)
	if g.entry.host != h.t.self.host && !h.t.party.HasSecret && !h.t.cfg.Insecure {
		h.fail(notice.Notice{Culprit: g.rank, Class: framework.ErrInvalid, Text: handshake.NoSecret(g.rank, 0)})
		return
	}
	if missing := h.missing(); len(missing) > 0 {
		h.write(g, wire.KindWaiting, []byte(missingText(missing)))
		return
	}
	entries := make([]entry, h.t.party.Size)
	entries[0] = h.t.self
	for r, g := range h.arrivals {
		entries[r] = g.entry
	}
	for r, g := range h.arrivals {
		body := append([]byte(nil), h.t.instance.id[:]...)
		for _, n := range neighbors(r, h.t.party.Size) {
			body = entries[n].append(body)
		}
		h.write(g, wire.KindTable, body)
	}
	h.t.mu.Lock()
	h.t.table = entries
	h.t.mu.Unlock()
	close(h.complete)
}

func (h *rendezvous) notifyAll(kind wire.Kind, body []byte) {
	for _, g := range h.arrivals {
		if g.present && !g.ready {
			h.write(g, kind, body)
		}
	}
}

// write sends a small frame: it fits into the socket's buffer unless the rank
// does not read at all.
func (h *rendezvous) write(g *arrival, kind wire.Kind, body []byte) {
	_ = g.conn.SetWriteDeadline(time.Now().Add(handshakeTimeout))
	_, _ = g.conn.Write(wire.Append(nil, kind, 0, body))
}

// missing are the ranks that are not here, none once all were.
func (h *rendezvous) missing() []int {
	select {
	case <-h.complete:
		return nil
	default:
	}
	var ranks []int
	for r := 1; r < h.t.party.Size; r++ {
		if !h.arrivals[r].here() {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// absence says which ranks did not come, and what is known about why.
func (h *rendezvous) absence(missing []int, cause error) notice.Notice {
	n := notice.Notice{Culprit: framework.NoPeer, Text: fmt.Sprintf("%s (%v)", missingText(missing), cause)}
	if len(missing) == 1 {
		n.Culprit = missing[0]
	}
	for _, r := range missing {
		if g := h.arrivals[r]; g != nil && !g.gaveUp && g.lost() != nil { // it was here: more is known about it than about the others
			return notice.Notice{Culprit: r, Text: fmt.Sprintf("%s, and no other process of rank %d took its place: %s", diedAtStart(g.lost()), r, n.Text)}
		}
	}
	claims := make([]int, 0, len(h.refused))
	for r := range h.refused {
		claims = append(claims, r)
	}
	slices.Sort(claims)
	for _, r := range claims[:min(len(claims), 3)] {
		n.Text += h.refused[r].said(r)
	}
	if len(claims) == 0 {
		n.Text += ": see whether its process was started there and reaches rank 0"
	}
	return n
}
