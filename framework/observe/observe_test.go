package observe

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// rig is a launcher's memory with ranks in it.
func rig(t *testing.T, ranks int, on bool) (*Memory, []*Rank) {
	t.Helper()
	m, err := New(ranks, on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	all := make([]*Rank, ranks)
	for i := range all {
		all[i] = open(t, m.Variable(), i, ranks)
	}
	return m, all
}

func open(t *testing.T, variable string, rank, size int) *Rank {
	t.Helper()
	r, err := Open(Facts{Job: "job", Rank: rank, Size: size, Local: rank, HostID: "here", Device: "host",
		Getenv: func(name string) string { return map[string]string{Env: variable}[name] }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// records reads what was written about calls.
func records(v *View, c *Cursor) (list []Record, lost uint64) {
	for _, s := range v.Read(c) {
		if s.Writer == "life" {
			continue
		}
		for i := range s.Records {
			list = s.Records[i].Parts(list)
		}
		lost += s.Lost
	}
	return list, lost
}

// Programs mark and switch at any time, also behind Close, when the memory is gone.
func TestRankIsUsedBehindItsEnd(t *testing.T) {
	r, err := Open(Facts{Job: "ended", Size: 1, Local: -1, On: true})
	if err != nil {
		t.Fatal(err)
	}
	if !r.On() {
		t.Error("records are off from the start")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.Mark("late")
	r.Switch(true)
	r.Fail(errors.New("late"))
	r.Life(Leave|Instant, 0)
	if r.On() {
		t.Error("records are on behind the end")
	}
}

func TestCallsAreSeen(t *testing.T) {
	m, ranks := rig(t, 2, false)
	if n := len(m.Views()); n != 2 {
		t.Fatalf("%d ranks are seen, expected 2", n)
	}
	v := m.Views()[1]
	b := ranks[1].Board("world", 1, 2)
	var c Cursor
	b.Begin(b.Clock(), collective.AllReduce, 4096, "ring", 0)
	s := v.States()
	if len(s) != 1 || !s[0].Busy() || s[0].Begun != 1 || s[0].Kind != collective.AllReduce || s[0].Bytes != 4096 || s[0].Algorithm != "ring" || s[0].Name != "world" {
		t.Errorf("%+v: expected the first call, in progress", s)
	}
	b.End()
	if s := v.States()[0]; s.Busy() || s.Total != 4096 {
		t.Errorf("%+v: expected a call that has ended", s)
	}
	if list, _ := records(v, &c); len(list) != 0 {
		t.Errorf("%d records while they are off", len(list))
	}
	if err := m.Switch(true); err != nil {
		t.Fatal(err)
	}
	b.Begin(b.Clock(), collective.Barrier, 0, "flags", 0)
	b.End()
	list, lost := records(v, &c)
	if len(list) != 3 || lost != 0 {
		t.Fatalf("%v, %d lost: expected a beginning, a choice and an end", list, lost)
	}
	_, sequence := CallOf(list[0].Call)
	if list[0].Event != Call|Begin || list[1].Event != Chosen|Instant || list[2].Event != Call|End || sequence != 2 || v.Name(int(list[1].Block)) != "flags" {
		t.Errorf("%v: expected call 2, and its algorithm", list)
	}
	if list[0].Time > list[1].Time || list[1].Time > list[2].Time {
		t.Errorf("%v: times run back", list)
	}
}

// Calls that C counts by the words of a board are among the others.
func TestCallsByWords(t *testing.T) {
	m, ranks := rig(t, 1, false)
	b := ranks[0].Board("world", 0, 1)
	call := func(algorithm string) {
		b.Begin(b.Clock(), collective.AllReduce, 8, algorithm, 0)
		b.End()
	}
	call("one")
	w := b.Words()
	one := *w.Algorithm
	call("two")
	if w.On == nil || *w.On != 0 || *w.Begun != 2 || *w.Ended != 2 || *w.Bytes != 8 || *w.Total != 16 || *w.Kind != uint32(collective.AllReduce) || *w.Algorithm == one {
		t.Errorf("%+v: expected two calls of 8 bytes", w)
	}
	*w.Begun, *w.Ended, *w.Total, *w.Algorithm = 7, 7, 100, one
	call("two")
	if x := m.Views()[0].States()[0]; x.Begun != 8 || x.Ended != 8 || x.Total != 108 || x.Algorithm != "two" {
		t.Errorf("%+v: expected the eighth call to be by two", x)
	}
	var none *Board
	if none.Words() != (Words{}) {
		t.Error("the nil Board has words")
	}
}

// A ring keeps the youngest records, and the reader knows how many there were.
func TestOverwrittenRecordsAreCounted(t *testing.T) {
	m, ranks := rig(t, 1, true)
	b := ranks[0].Board("world", 0, 1)
	b.ring.clock = func() int64 { return 1 } // each call is one record
	const calls = 3 * RingRecords
	for range calls {
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
		b.End()
	}
	var c Cursor
	list, lost := records(m.Views()[0], &c)
	if read := len(list) / 3; uint64(read)+lost != calls || read < RingRecords-1 || read > RingRecords {
		t.Errorf("%d calls read, %d lost: expected together %d", read, lost, calls)
	}
	if _, last := CallOf(list[len(list)-1].Call); last != calls {
		t.Errorf("the last call is %d, expected %d", last, calls)
	}
	if list, lost := records(m.Views()[0], &c); len(list) != 0 || lost != 0 {
		t.Errorf("%d read and %d lost the second time", len(list), lost)
	}
}

// A reader never takes half a record for one, however fast the writer is.
func TestReadersSeeWholeRecords(t *testing.T) {
	m, ranks := rig(t, 1, true)
	w := newWriter(ranks[0].at, "fast", func() int64 { return 0 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(200_000) {
			w.Add(Put|Instant, i, i, uint16(i), int32(i))
		}
	}()
	var c Cursor
	next, read := uint64(0), 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for _, s := range m.Views()[0].Read(&c) {
			if s.Writer != "fast" {
				continue
			}
			next += s.Lost
			for _, x := range s.Records {
				if x.Call != next || x.Bytes != next || x.Block != uint16(next) || x.Peer != int32(next) {
					t.Fatalf("%+v: expected record %d", x, next)
				}
				next++
				read++
			}
		}
	}
	if next != 200_000 || read == 0 {
		t.Errorf("%d records are accounted for, %d of them read", next, read)
	}
}

func TestFailureNamesTheParty(t *testing.T) {
	m, ranks := rig(t, 2, false)
	cause := &framework.Error{Op: "recv", Peer: 1, Err: framework.ErrPeer}
	ranks[0].Running()
	ranks[0].Fail(cause)
	ranks[0].Fail(errors.New("later"))
	if i := m.Views()[0].Info(); i.State != StateFailed || i.Culprit != 1 || i.Failure != cause.Error() {
		t.Errorf("%+v: expected the first failure, of rank 1", i)
	}
	var c Cursor
	for _, s := range m.Views()[0].Read(&c) {
		for _, x := range s.Records {
			if x.Event == Failed|Instant && x.Peer == 1 {
				return
			}
		}
	}
	t.Error("no record of the failure, although records were off: expected one")
}

// The region of a rank that has left can be read, and serves another one of the same process.
func TestRegionsAreTakenAgain(t *testing.T) {
	m, ranks := rig(t, 1, false)
	second := open(t, m.Variable(), 0, 1)
	if second.Region() == ranks[0].Region() {
		t.Error("two ranks have the same region")
	}
	b := ranks[0].Board("world", 0, 1)
	b.Begin(0, collective.AllReduce, 1, "ring", 0)
	b.Close()
	if err := ranks[0].Close(); err != nil {
		t.Fatal(err)
	}
	b.End() // of a communicator that ends late: nothing happens
	if i := m.Views()[0].Info(); i.State != StateLeft || i.PID != 0 {
		t.Errorf("%+v: expected a rank that has left", i)
	}
	third := open(t, m.Variable(), 0, 1)
	if i := m.Views()[0].Info(); i.PID != os.Getpid() || i.State != StateJoining || third.Region() == second.Region() {
		t.Errorf("%+v: expected the region to be taken again", i)
	}
}

func TestFind(t *testing.T) {
	_, ranks := rig(t, 1, false)
	ranks[0].Switch(true)
	name := fmt.Sprint("find-", os.Getpid(), "-", t.Name())
	put(ranks[0].at.header().job[:], name)
	all, err := Find(false)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range all {
		for _, v := range m.Views() {
			if i := v.Info(); i.Job == name && i.On {
				found++
			}
		}
		if err := m.Switch(false); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("memory that is mapped for reading was switched: %v", err)
		}
		m.Close()
	}
	if found != 1 {
		t.Errorf("the rank was found %d times", found)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	m, ranks := rig(t, 1, false)
	b := ranks[0].Board("world", 0, 1)
	names := []string{"ring", "direct"}
	for _, on := range []bool{false, true} {
		if err := m.Switch(on); err != nil {
			t.Fatal(err)
		}
		n := 0
		if a := testing.AllocsPerRun(1000, func() {
			n++
			b.Begin(b.Clock(), collective.AllReduce, 1, names[n%2], 0)
			b.End()
		}); a != 0 {
			t.Errorf("on %v: %v allocations a call", on, a)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprint("on=", on), func(b *testing.B) {
			m, err := New(1, on)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			r, err := Open(Facts{Getenv: func(string) string { return m.Variable() }})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			board := r.Board("world", 0, 1)
			defer board.Close()
			for b.Loop() {
				board.Begin(board.Clock(), collective.AllReduce, 1, "ring", 0)
				board.End()
			}
		})
	}
}
