package observe

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// Memory is the regions of the ranks that one process has made memory for. It belongs to that process, or is mapped
// for reading.
type Memory struct {
	m     *memory
	write bool
}

// New makes memory for the ranks of a launcher. on has them write records from the start.
func New(ranks int, on bool) (*Memory, error) {
	m, err := newMemory(ranks)
	if err != nil {
		return nil, err
	}
	for i := range ranks {
		h := m.region(i).header()
		h.version = version
		if on {
			h.on = 1
		}
		h.magic = magic
	}
	return &Memory{m: m, write: true}, nil
}

// Variable is the value of Env for the ranks.
func (m *Memory) Variable() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.m.file.Fd())
}

// Close gives the memory up. Views of it must not be used any more.
func (m *Memory) Close() error { return m.m.close() }

// Switch turns records of all ranks on or off.
func (m *Memory) Switch(on bool) error {
	if !m.write {
		return fmt.Errorf("observe: %w: the memory is mapped for reading", framework.ErrInvalid)
	}
	for i := range m.m.regions() {
		m.m.region(i).turn(on)
	}
	return nil
}

// Views returns the ranks that have taken their regions.
func (m *Memory) Views() []*View {
	var all []*View
	for i := range m.m.regions() {
		at := m.m.region(i)
		if h := at.header(); h.magic == magic && h.version == version && atomic.LoadUint32(&h.state) != StateFree {
			all = append(all, &View{Region: i, at: at})
		}
	}
	return all
}

// Find maps the regions of all ranks of this user on this host, for reading, or to switch records on and off. Memory
// that cannot be opened belongs to others, and is passed over.
func Find(write bool) ([]*Memory, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	slices.SortFunc(processes, func(a, b string) int { return number(a) - number(b) })
	var all []*Memory
	seen := map[string]bool{}
	for _, process := range processes {
		process = Process(process)
		entries, err := os.ReadDir(process + "/fd")
		if err != nil {
			continue // another user's, or gone
		}
		for _, e := range entries {
			path := process + "/fd/" + e.Name()
			target, err := os.Readlink(path)
			if err != nil || !strings.HasPrefix(target, "/memfd:"+fileName) {
				continue
			}
			info, err := os.Stat(path)
			if err != nil || seen[identity(info)] {
				continue
			}
			m, err := openMemory(path, write)
			if err != nil {
				continue // another reader that has closed it by now hides no memory, since ranks have it, too
			}
			seen[identity(info)] = true
			all = append(all, &Memory{m: m, write: write})
		}
	}
	return all, nil
}

func number(process string) int {
	n, _ := strconv.Atoi(filepath.Base(process)) // it consists of digits
	return n
}

// View is one rank, seen by a reader.
type View struct {
	Region int // of the memory
	at     region
}

// Info describes a rank, as it has written it.
type Info struct {
	Job, Host, HostID, Device, Program string

	Rank, Size int
	PID        int    // 0: it has left
	State      uint32 // StateRunning, …
	On         bool
	Started    int64 // Unix time in ns
	Origin     int64 // the clock of the rank at that moment
	Ticked     int64 // the clock of the rank when its sampler looked last
	Failure    string
	FailedAt   int64
	Culprit    int // of Failure, or framework.NoPeer
	Unwritten  int // writers for which there was no ring
	Clock      Clock
}

// Info reads who the rank is.
func (v *View) Info() Info {
	h := v.at.header()
	return Info{
		Job: text(h.job[:]), Host: text(h.host[:]), HostID: text(h.hostID[:]), Device: text(h.device[:]), Program: text(h.program[:]),
		Rank: int(h.rank), Size: int(h.size), PID: int(atomic.LoadUint64(&h.owner)), State: atomic.LoadUint32(&h.state),
		On: atomic.LoadUint32(&h.on) != 0, Started: h.started, Origin: h.origin, Ticked: atomic.LoadInt64(&h.ticked),
		Failure: text(h.failure[:]), FailedAt: h.failedAt, Culprit: int(h.culprit),
		Unwritten: int(atomic.LoadUint32(&h.unwritten)), Clock: v.at.getClock(),
	}
}

// Standing changes when another rank takes the region, when the rank's state does, and when a communicator is made or closed.
func (v *View) Standing() uint64 {
	h := v.at.header()
	x := uint64(h.started)*31 + uint64(atomic.LoadUint32(&h.state))
	for i := range maxBoards {
		s := v.at.board(i)
		x = x*31 + atomic.LoadUint64(&s.turn)<<2 + uint64(atomic.LoadUint32(&s.state))
	}
	return x
}

// State is where a rank is in one communicator.
type State struct {
	Board      int
	Turn       uint64 // which communicator of the rank it is: another one may take the place of one that was closed
	Name       string
	Rank, Size int
	Begun      uint64 // calls
	Ended      uint64
	Kind       collective.Kind // of the call begun last
	Algorithm  string
	Bytes      uint64
	Total      uint64 // bytes of all calls that have ended
	Since      int64  // the clock of the rank when that call was first seen
	At         int64  // and when it began, if records are on and it has not ended; else 0
	Open       bool   // the communicator is not closed
}

// Busy reports whether a call is in progress.
func (s *State) Busy() bool { return s.Begun != s.Ended }

// States reads the communicators of the rank.
func (v *View) States() []State {
	var all []State
	for i := range maxBoards {
		s := v.at.board(i)
		state := atomic.LoadUint32(&s.state)
		if state == 0 {
			continue
		}
		x := State{
			Board: i, Turn: atomic.LoadUint64(&s.turn), Name: text(s.name[:]), Rank: int(s.rank), Size: int(s.size), Open: state == 2,
			Ended: atomic.LoadUint64(&s.ended), Begun: atomic.LoadUint64(&s.begun), Total: atomic.LoadUint64(&s.total),
			Kind: collective.Kind(s.kind), Algorithm: v.Name(int(s.algorithm)), Bytes: s.bytes, Since: atomic.LoadInt64(&s.since),
			At: atomic.LoadInt64(&s.at),
		}
		if !x.Busy() || atomic.LoadUint64(&s.begun) != x.Begun {
			x.At = 0 // of a later call
		}
		if s.seen != x.Begun {
			x.Since = 0 // it has begun since the sampler looked
		}
		if atomic.LoadUint64(&s.turn) != x.Turn || atomic.LoadUint32(&s.state) == 0 {
			continue // another communicator takes the place just now
		}
		all = append(all, x)
	}
	return all
}

// Names is how many texts the table of names has room for.
const Names = maxNames

// Name reads a text of the table of names.
func (v *View) Name(n int) string {
	if n <= 0 || n >= maxNames || v.at.name(n)[0] == 0 {
		return ""
	}
	return text(v.at.name(n)[:])
}

// Dump asks the rank for the state of its channels, and waits until ctx ends for the answer. Of several readers that ask at
// once each gets one that was written after its question. The memory is one that Find has mapped for writing.
func (v *View) Dump(ctx context.Context) (string, error) {
	h := v.at.header()
	asked := atomic.AddUint64(&h.dumpAsked, 1)
	tick := time.NewTicker(tick / 10)
	defer tick.Stop()
	for atomic.LoadUint64(&h.dumpMade) < asked {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("dump of rank %d: it does not answer: %w", h.rank, ctx.Err())
		}
	}
	return text(v.at.dump()[:]), nil
}

// Cursor is how far a reader has read the rings of a rank.
type Cursor struct {
	next    [maxRings]uint64
	writers [maxRings]string
}

// Stretch holds the records read from one ring.
type Stretch struct {
	Ring    int
	Writer  string
	Records []Record
	Lost    uint64 // that were overwritten before they were read
}

// Read reads what the rank has written since the cursor, which it moves.
func (v *View) Read(c *Cursor) []Stretch {
	var all []Stretch
	for i := range maxRings {
		g := v.at.ring(i)
		if atomic.LoadUint32(&g.state) < ringUsed {
			continue
		}
		c.next[i] = max(c.next[i], v.at.header().taken[i])
		writer, end := text(g.name[:]), atomic.LoadUint64(&g.next)
		if base := min(atomic.LoadUint64(&g.base), end); base > c.next[i] { // of its former writer
			all = append(all, v.stretch(c, i, base))
		}
		c.writers[i] = writer
		if end > c.next[i] {
			all = append(all, v.stretch(c, i, end))
		}
	}
	return all
}

// Rest reads what the rank of the cursor had still written when another one took its region.
func (v *View) Rest(c *Cursor) []Stretch {
	var all []Stretch
	for i := range maxRings {
		if end := v.at.header().taken[i]; end > c.next[i] {
			all = append(all, v.stretch(c, i, end))
		}
	}
	return all
}

// stretch reads a ring up to a position, to which it moves the cursor.
func (v *View) stretch(c *Cursor, i int, end uint64) Stretch {
	s := Stretch{Ring: i, Writer: cmp.Or(c.writers[i], "closed")}
	from := c.next[i]
	if end-from > RingRecords {
		from = end - RingRecords
	}
	if atomic.LoadUint32(&v.at.ring(i).shared) != 0 {
		end = v.shared(i, &s, from, end)
	} else {
		s.Records = make([]Record, 0, end-from)
		for p := from; p < end; p++ {
			s.Records = append(s.Records, *v.at.record(i, p))
		}
	}
	// The writer may meanwhile have come round. It may be writing the record behind the last one.
	if now := atomic.LoadUint64(&v.at.ring(i).next) + 1; now > RingRecords && now-RingRecords > from {
		gone := min(now-RingRecords-from, uint64(len(s.Records)))
		s.Records = s.Records[gone:]
		from += gone
	}
	s.Lost = from - c.next[i]
	c.next[i] = end
	return s
}

// shared reads a ring to which several threads write. It stops at a record that is being written, unless others have written half the ring
// since: its thread has ended. Such a record is left out, which is no loss: it has not happened.
func (v *View) shared(i int, s *Stretch, from, end uint64) (until uint64) {
	s.Records = make([]Record, 0, end-from)
	for p := from; p < end; p++ {
		x := v.at.record(i, p)
		if last := atomic.LoadUint64((*uint64)(unsafe.Pointer(&x.Event))); uint16(last>>48) == uint16(p/RingRecords+1) {
			s.Records = append(s.Records, Record{Time: x.Time, Call: x.Call, Bytes: x.Bytes, Event: Event(last), Block: uint16(last >> 16), Peer: int32(int16(last >> 32))})
		} else if end-p < RingRecords/2 {
			return p
		}
	}
	return end
}
