package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// outbound is the sending side of one proxy's streams to one peer.
type outbound struct {
	p     *proxy
	peer  int
	place netip.AddrPort // where the peer was reached

	streams []*stream
	over    chan struct{} // closed when the group has ended
	work    sync.WaitGroup

	// use is held by the drain loop while it sends, and guards what follows.
	use    sync.Mutex
	held   []byte // frames and small puts that were not sent yet
	parts  []part // data of larger ones, which comes in between
	owners []*region
	room   int    // that is left until what is held is sent
	puts   uint64 // bytes of the puts among it, with what other streams have of them
	opened [handles]bool
	round  uint64 // puts with stripes
	asked  uint64 // flushes
	fresh  bool   // something was sent since the last flush was asked for

	mu      sync.Mutex
	pending []pendingFlush // flushes that are not answered, in order
	left    bool           // the peer has closed its endpoint
	gone    error          // why nothing can be sent any more
	closed  bool           // by this rank
	settled chan struct{}
}

// pendingFlush is a flush: whom to tell when it is answered.
type pendingFlush struct {
	number   uint64
	word     uint32
	position uint64
	own      bool // the proxy's own
}

// stream is one connection. Those but the first have a writer of their own.
type stream struct {
	wire   *wire
	pieces chan piece
	head   []byte // of a stripe; by itself, as C is handed it

	frames []byte // of the call that is under way
	parts  []part
	err    error
	call   func(fd int)
}

// piece is a stripe on its way.
type piece struct {
	frame frame
	data  []byte
	from  *region // in use until it is written
}

// newOutbound makes the streams of a proxy to the peer of a connection.
func newOutbound(ctx context.Context, p *proxy, c *connection) (*outbound, error) {
	config := p.t.config
	g := &outbound{p: p, peer: c.peer, over: make(chan struct{}), settled: make(chan struct{}, 1), room: p.t.config.Buffer}
	h := hello{streams: uint8(config.Streams), from: uint32(c.config.Rank), to: uint32(c.peer), endpoint: c.address.endpoint}
	_, _ = rand.Read(h.group[:])
	places := candidates(c.address, p.t.stack, subnets())
	for n := range config.Streams {
		h.stream = uint8(n)
		conn, place, err := c.dial(ctx, config, places, h)
		if err != nil {
			for _, s := range g.streams {
				s.wire.close()
			}
			return nil, err
		}
		g.place, places = place, []netip.AddrPort{place} // the others go where the first went
		s, err := newStream(conn)
		if err != nil {
			for _, s := range g.streams {
				s.wire.close()
			}
			return nil, err
		}
		if n > 0 {
			s.pieces = make(chan piece, 16)
		}
		g.streams = append(g.streams, s)
	}
	g.work.Go(g.watch)
	g.work.Go(g.answers)
	for _, s := range g.streams[1:] {
		g.work.Go(func() { g.write(s) })
	}
	return g, nil
}

func newStream(conn *net.TCPConn) (*stream, error) {
	defer conn.Close() // the wire has a descriptor of its own
	w, err := newWire(conn)
	if err != nil {
		return nil, err
	}
	s := &stream{wire: w, head: make([]byte, 0, frameBytes)}
	s.call = func(fd int) { s.err = sendAll(fd, s.frames, s.parts) }
	return s, nil
}

// open adds the frame that lets a handle stand for the memory of a key.
func (g *outbound) open(b []byte, handle uint32, k key) []byte {
	if g.opened[handle] {
		return b
	}
	g.opened[handle] = true
	b = frame{kind: frameOpen, handle: handle, bytes: openBytes}.append(b)
	return append(order.AppendUint64(b, k.id), k.token[:]...)
}

// request is what one trigger asks of a group.
type request struct {
	data   []byte // nil: no put
	from   *region
	to     *target
	offset uint64

	signal *mark  // nil: no signal
	flush  bool   // answered by word and position
	word   uint32 // of the ring
	at     uint64
}

// send performs a request: data, then signal, then flush. A request to a peer that
// has left in order is dropped, as stores to its memory would be lost: ranks do not
// leave at the same time, and the last signals of one may come after the other.
func (g *outbound) send(r request) error {
	g.use.Lock()
	defer g.use.Unlock()
	err := g.usable()
	if err == nil {
		err = g.queue(r)
	} else if r.flush && g.parted() {
		g.complete(pendingFlush{word: r.word, position: r.at})
	}
	if err != nil && g.parted() {
		g.drop()
		return nil
	}
	return err
}

// queue adds a request to what is held, and sends that if it is enough.
func (g *outbound) queue(r request) error {
	g.fresh = true
	if r.to != nil {
		g.held = g.open(g.held, r.to.handle, r.to.key)
	}
	if r.signal != nil {
		g.held = g.open(g.held, r.signal.handle, r.signal.key)
	}
	g.puts += uint64(len(r.data))
	switch {
	case r.to == nil:
	case len(r.data) <= smallPut:
		g.held = frame{kind: framePut, handle: r.to.handle, offset: r.offset, bytes: uint64(len(r.data))}.append(g.held)
		g.held = append(g.held, r.data...)
	default:
		own, err := g.stripes(r)
		if err != nil {
			return err
		}
		if !r.from.retain() {
			return fmt.Errorf("%w: the source of a put was closed", framework.ErrInvalid)
		}
		g.parts, g.owners = append(g.parts, partOf(len(g.held), own)), append(g.owners, r.from)
		g.room -= len(own)
	}
	if r.signal != nil {
		g.held = frame{kind: frameSignal, handle: r.signal.handle, offset: r.signal.offset}.append(g.held)
	}
	if r.flush {
		g.held = g.ask(g.held, pendingFlush{word: r.word, position: r.at})
	}
	if len(g.held) < g.room && len(g.parts) < mostParts {
		return nil
	}
	return g.writeFirst()
}

// stripes hands all but the first part of a large put to the other streams, and
// queues the head of the first.
func (g *outbound) stripes(r request) ([]byte, error) {
	bytes := len(r.data)
	n := min(len(g.streams), bytes/g.p.t.config.stripe())
	if n < 2 {
		g.held = frame{kind: framePut, handle: r.to.handle, offset: r.offset, bytes: uint64(bytes)}.append(g.held)
		return r.data, nil
	}
	g.round++
	const page = 4096
	part := bytes / n &^ (page - 1) // at least one: a stripe is that large; the last takes the rest
	for i := 1; i < n; i++ {
		begin, end := i*part, min((i+1)*part, bytes)
		if i == n-1 {
			end = bytes
		}
		if !r.from.retain() {
			return nil, fmt.Errorf("%w: the source of a put was closed", framework.ErrInvalid)
		}
		f := frame{kind: frameStripe, handle: r.to.handle, offset: r.offset + uint64(begin), bytes: uint64(end - begin), number: g.round}
		select {
		case g.streams[i].pieces <- piece{f, r.data[begin:end], r.from}:
		case <-g.over:
			r.from.release()
			return nil, g.usable()
		}
	}
	g.held = frame{kind: frameStripe, others: uint8(n - 1), handle: r.to.handle, offset: r.offset, bytes: uint64(part), number: g.round}.append(g.held)
	return r.data[:part], nil
}

// writeFirst sends what is held.
func (g *outbound) writeFirst() error {
	if g.p.records.Wanted() { // before the peer can answer
		g.p.records.Write(observe.Posted|observe.Instant, g.p.taken, g.puts, 0, g.peer)
	}
	err := g.streams[0].send(g.held, g.parts)
	g.drop()
	return g.lost(err)
}

// drop forgets what is held.
func (g *outbound) drop() {
	for _, r := range g.owners {
		r.release()
	}
	clear(g.owners)
	g.held, g.parts, g.owners, g.room, g.puts = g.held[:0], g.parts[:0], g.owners[:0], g.p.t.config.Buffer, 0
}

// push sends what is held.
func (g *outbound) push() error {
	g.use.Lock()
	defer g.use.Unlock()
	if len(g.held) == 0 {
		return nil
	}
	err := g.usable()
	if err == nil {
		err = g.writeFirst()
	}
	g.drop()
	if g.parted() {
		return nil
	}
	return err
}

// send writes frames with data in between.
func (s *stream) send(frames []byte, parts []part) error {
	s.frames, s.parts = frames, parts
	err := s.wire.use(s.call)
	s.frames, s.parts = nil, nil
	if err != nil {
		return err
	}
	return s.err
}

// write sends the stripes of one stream.
func (g *outbound) write(s *stream) {
	parts := make([]part, 0, 1)
	for {
		select {
		case p := <-s.pieces:
			parts = append(parts[:0], partOf(frameBytes, p.data))
			err := s.send(p.frame.append(s.head), parts)
			p.from.release()
			if err != nil {
				_ = g.lost(err)
			}
		case <-g.over:
			return
		}
	}
}

// ask adds the frame of a flush.
func (g *outbound) ask(b []byte, q pendingFlush) []byte {
	g.asked++
	g.fresh = false
	q.number = g.asked
	g.mu.Lock()
	over := g.gone != nil
	if !over {
		g.pending = append(g.pending, q)
	}
	g.mu.Unlock()
	if over && g.parted() {
		g.complete(q)
	}
	return frame{kind: frameFlush, number: q.number}.append(b)
}

// usable says why nothing can be sent, if so.
func (g *outbound) usable() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// lost is the error of a write. The code that ended the group knows better why.
func (g *outbound) lost(err error) error {
	if err == nil {
		return nil
	}
	select { // the first stream may still have to say why
	case <-g.over:
	case <-time.After(lastWord):
	}
	g.fail(fmt.Errorf("%w: %w", framework.ErrPeer, err))
	return g.usable()
}

// fail ends the group because of an error that is not of this rank's making.
func (g *outbound) fail(err error) {
	g.finish(&framework.Error{Peer: g.peer, Err: fmt.Errorf("%v: %w", g.place, err)}, false)
}

// finish ends the group: by this rank, or for a reason. The proxy ends as well, unless
// the peer has left in order: then nothing is waited for any more.
func (g *outbound) finish(why error, own bool) {
	g.mu.Lock()
	if g.gone != nil {
		g.closed = g.closed || own
		g.mu.Unlock()
		return
	}
	g.gone, g.closed = why, own
	left, pending := g.left, g.pending
	g.pending = nil
	g.mu.Unlock()
	if left {
		for _, q := range pending {
			g.complete(q)
		}
	}
	close(g.over)
	for _, s := range g.streams {
		s.wire.close()
	}
	if !own && !left {
		g.p.end(why)
	}
}

// close ends the group by this rank, and waits until nothing of it runs.
func (g *outbound) close() {
	g.finish(&framework.Error{Peer: g.peer, Err: fmt.Errorf("%w: the connection", framework.ErrClosed)}, true)
	g.use.Lock() // the drain loop is out, and comes in no more
	defer g.use.Unlock()
	g.drop()
	g.work.Wait()
	for _, s := range g.streams {
		for {
			select {
			case p := <-s.pieces:
				p.from.release()
				continue
			default:
			}
			break
		}
	}
}
