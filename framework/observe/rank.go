package observe

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Env is the variable with the memory that a launcher has made for the ranks of its host, and EnvRegion that with the
// region of the rank of which a plugin is.
const (
	Env       = "MSCCLPP_OBSERVE_MEMORY"
	EnvRegion = "MSCCLPP_OBSERVE_REGION"
)

// Facts say who a rank is.
type Facts struct {
	Job     string // the same on all ranks
	Rank    int
	Size    int
	Local   int    // number among the ranks of the launcher
	HostID  string // ranks with the same one have the same clock
	Device  string
	On      bool                // records are wanted from the start
	Graphs  int                 // one in so many calls of a graph is measured on the device; 0: none
	Getenv  func(string) string // nil: os.Getenv
	Clock   func() int64        // nil: that of the host
	Program string              // "": that of the process
}

// Rank writes the state and the records of one rank. Its methods may be called from any goroutine, and on a nil Rank.
type Rank struct {
	memory *memory
	at     region
	path   string
	lent   bool // the memory is a launcher's
	clock  func() int64
	graphs int

	on      atomic.Pointer[uint32] // the switch
	serving sync.Mutex             // of dumps

	mu     sync.Mutex
	boards [maxBoards]*Board
	turn   uint64 // communicators so far
	life   *Writer
	marks  *Writer
	named  map[string]int
	dump   func(io.Writer) error
	stop   chan struct{}
	group  sync.WaitGroup
	closed bool

	flowing bool // channels or kernels of a communicator write
	kernels []*Kernels
}

// Open takes the region that the launcher has made for a rank, or makes one.
func Open(f Facts) (*Rank, error) {
	if f.Getenv == nil {
		f.Getenv = os.Getenv
	}
	if f.Clock == nil {
		f.Clock = Now
	}
	r := &Rank{clock: f.Clock, graphs: f.Graphs, named: map[string]int{}, stop: make(chan struct{})}
	if !r.take(f.Getenv(Env), f.Local) {
		m, err := newMemory(1)
		if err != nil {
			return nil, err
		}
		r.memory, r.at = m, m.region(0)
		r.path = fmt.Sprintf("/proc/%d/fd/%d:0", os.Getpid(), m.file.Fd())
		r.at.header().magic, r.at.header().version = magic, version
		if f.On {
			r.at.header().on = 1
		}
		atomic.StoreUint64(&r.at.header().owner, uint64(os.Getpid()))
	}
	r.on.Store(&r.at.header().on)
	r.introduce(&f)
	r.life = newWriter(r.at, "life", r.clock)
	r.group.Go(r.sample)
	return r, nil
}

// take takes a region of the launcher. One that another rank has belongs to that: the ranks of a job within the job.
func (r *Rank) take(path string, local int) bool {
	if path == "" || local < 0 {
		return false
	}
	m, err := openMemory(path, true)
	if err != nil {
		return false // the launcher is in a place of its own, such as another container
	}
	if local < m.regions() {
		at := m.region(local)
		if h := at.header(); h.magic == magic && h.version == version && atomic.CompareAndSwapUint64(&h.owner, 0, uint64(os.Getpid())) {
			r.memory, r.at, r.path, r.lent = m, at, path+":"+strconv.Itoa(local), true
			return true
		}
	}
	m.close()
	return false
}

func (r *Rank) introduce(f *Facts) {
	h := r.at.header()
	for i := range maxRings { // of the rank before, if there was one
		h.taken[i] = atomic.LoadUint64(&r.at.ring(i).next)
	}
	for i := range maxBoards {
		atomic.StoreUint32(&r.at.board(i).state, 0)
	}
	h.rank, h.size = int32(f.Rank), int32(f.Size)
	h.culprit = framework.NoPeer
	h.started, h.origin = time.Now().UnixNano(), r.clock()
	put(h.job[:], f.Job)
	host, _ := os.Hostname() // a label
	put(h.host[:], host)
	put(h.hostID[:], f.HostID)
	put(h.device[:], f.Device)
	if f.Program == "" {
		f.Program = strings.Join(os.Args, " ")
	}
	put(h.program[:], f.Program)
	put(h.failure[:], "")
	atomic.StoreUint32(&h.state, StateJoining)
}

// Region names the region for plugins of this rank: the value of EnvRegion.
func (r *Rank) Region() string {
	if r == nil {
		return ""
	}
	return r.path
}

// Own is the memory of a rank that no launcher looks at, for a reader in its process, up to Close. It is closed with the rank. Nil: a
// launcher has made it.
func (r *Rank) Own() *Memory {
	if r == nil || r.lent {
		return nil
	}
	return &Memory{m: r.memory, write: true}
}

// SetDevice says on which device the rank is, once that is known.
func (r *Rank) SetDevice(name string) {
	if r != nil {
		put(r.at.header().device[:], name)
	}
}

// Life writes a record about the life of the job.
func (r *Rank) Life(e Event, peer int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life != nil && !r.closed { // these are few, and wanted at the end of every job
		r.life.write(r.clock(), e, 0, 0, 0, int32(peer))
	}
}

// Running says that the rank has found the others.
func (r *Rank) Running() {
	if r != nil {
		atomic.CompareAndSwapUint32(&r.at.header().state, StateJoining, StateRunning)
	}
}

// Fail says why the job has failed. The first reason counts.
func (r *Rank) Fail(cause error) {
	if r == nil || cause == nil {
		return
	}
	r.mu.Lock()
	h := r.at.header()
	if r.closed || atomic.LoadUint32(&h.state) == StateFailed {
		r.mu.Unlock()
		return
	}
	put(h.failure[:], cause.Error())
	h.culprit, h.failedAt = int32(framework.PeerOf(cause)), r.clock()
	atomic.StoreUint32(&h.state, StateFailed)
	r.mu.Unlock()
	r.Life(Failed|Instant, framework.PeerOf(cause))
}

// Mark writes a text of the program into the trace. A rank can have about a hundred different texts.
func (r *Rank) Mark(text string) {
	if !r.On() {
		return
	}
	n := r.number(text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.marks == nil {
		if r.marks = newWriter(r.at, "marks", r.clock); r.marks == nil {
			return
		}
	}
	r.marks.Add(Mark|Instant, 0, 0, uint16(n), framework.NoPeer)
}

// On reports whether records are wanted.
func (r *Rank) On() bool { return r != nil && atomic.LoadUint32(r.on.Load()) != 0 }

// Switch turns records on or off, for all writers of the rank.
func (r *Rank) Switch(on bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed { // else the memory is gone
		r.at.turn(on)
	}
}

func (r region) turn(on bool) {
	word := uint32(0)
	if on {
		word = 1
	}
	atomic.StoreUint32(&r.header().on, word)
}

// Board gives a communicator its place. Nil: all places are taken.
func (r *Rank) Board(name string, rank, size int) *Board {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	for _, wanted := range []uint32{0, 3} {
		for i := range maxBoards {
			s := r.at.board(i)
			if s.state != wanted {
				continue
			}
			b := &Board{rank: r, index: i, shared: s, ring: newWriter(r.at, name, r.clock)}
			r.turn++
			atomic.StoreUint32(&s.state, 0)
			atomic.StoreUint64(&s.turn, r.turn)
			*s = board{rank: int32(rank), size: int32(size), ring: -1, turn: r.turn}
			if b.ring != nil {
				s.ring = int32(b.ring.index)
			}
			put(s.name[:], name)
			atomic.StoreUint32(&s.state, 2)
			r.boards[i] = b
			if n := slices.IndexFunc(r.kernels, func(k *Kernels) bool { return k.comm == name }); n >= 0 {
				b.kernels = r.kernels[n]
				b.kernels.count(i, &s.begun)
			}
			return b
		}
	}
	return nil
}

// number is that of a text in the table of names; 0: there is no room for another one.
func (r *Rank) number(text string) int {
	if len(text) > nameBytes-1 {
		text = text[:nameBytes-1]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, known := r.named[text]; known || r.closed {
		return n
	}
	n := len(r.named) + 1
	if n >= maxNames {
		return 0
	}
	put(r.at.name(n)[:], text)
	r.named[text] = n
	return n
}

// tick is how often the sampler looks: the age of a call is known to so much.
const tick = 100 * time.Millisecond

// sample notes since when calls last, so that calls need not read a clock.
func (r *Rank) sample() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		r.look(r.clock())
		r.serve()
		select {
		case <-ticker.C:
		case <-r.stop:
			return
		}
	}
}

// OnDump has f write the state of the rank when a reader asks for it. f may be called at any time before Close, and
// should not wait; nil: no more.
func (r *Rank) OnDump(f func(io.Writer) error) {
	if r != nil {
		r.serving.Lock()
		defer r.serving.Unlock()
		r.dump = f
	}
}

// serve writes the dump that was asked for.
func (r *Rank) serve() {
	h := r.at.header()
	asked := atomic.LoadUint64(&h.dumpAsked)
	if asked == atomic.LoadUint64(&h.dumpMade) {
		return
	}
	var text bytes.Buffer
	r.serving.Lock()
	if r.dump == nil || r.dump(&text) != nil {
		text.WriteString("the rank has no channels\n")
	}
	r.serving.Unlock()
	put(r.at.dump()[:], text.String())
	atomic.StoreUint64(&h.dumpMade, asked)
}

func (r *Rank) look(now int64) {
	ticks.renew()
	atomic.StoreInt64(&r.at.header().ticked, now)
	r.mu.Lock()
	kernels := slices.Clone(r.kernels)
	defer func() {
		r.mu.Unlock()
		for _, k := range kernels {
			k.follow()
		}
	}()
	for i := range maxBoards {
		s := r.at.board(i)
		if begun := atomic.LoadUint64(&s.begun); atomic.LoadUint32(&s.state) == 2 && begun != s.seen {
			s.seen = begun
			atomic.StoreInt64(&s.since, now)
		}
	}
}

// Close ends the observation. The records can be read as long as the launcher is there.
func (r *Rank) Close() error {
	if r == nil {
		return nil
	}
	r.Life(Leave|Instant, framework.NoPeer)
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.on.Store(new(uint32))
	r.life.end()
	r.marks.end()
	h := r.at.header()
	if atomic.LoadUint32(&h.state) != StateFailed {
		atomic.StoreUint32(&h.state, StateLeft)
	}
	used := r.flowing || slices.ContainsFunc(r.boards[:], func(b *Board) bool { return b != nil })
	kernels := slices.Clone(r.kernels)
	r.mu.Unlock()
	close(r.stop)
	r.group.Wait()
	for _, k := range kernels {
		k.follow() // they stop
	}
	atomic.StoreUint64(&h.owner, 0)
	if used {
		return r.memory.file.Close() // a communicator that nobody has closed may still write
	}
	return r.memory.close()
}
