package observe

import (
	"fmt"
	"testing"
	"unsafe"
)

// Loops of plugins have rings while records are wanted, and no longer: so more of them may come and go than there are rings.
func TestLoopsGiveTheirRingsBack(t *testing.T) {
	m, ranks := rig(t, 1, false)
	taken := func() (n int) {
		for i := range maxRings {
			if ranks[0].at.ring(i).state == ringUsed {
				n++
			}
		}
		return n
	}
	before := taken()
	var loops []*Loop
	for n := range 2 * maxRings {
		loops = append(loops, &Loop{On: unsafe.Pointer(&ranks[0].at.header().on), at: ranks[0].at, name: fmt.Sprint("proxy ", n)})
	}
	if n := taken(); n != before {
		t.Errorf("%d rings are taken while no records are wanted, expected %d", n, before)
	}
	var c Cursor
	for turn := range 2 * maxRings {
		ranks[0].Switch(true)
		for n := range 3 {
			l := loops[(turn+n)%len(loops)]
			l.Write(Trigger|Begin, uint64(turn), 0, 0, n)
			l.Rest() // does not give it back: they are wanted
			l.Write(Trigger|End, uint64(turn), 0, 0, n)
		}
		if n := taken(); n != before+3 {
			t.Fatalf("%d rings are taken by three loops, expected %d", n, before+3)
		}
		ranks[0].Switch(false)
		for _, l := range loops {
			l.Rest()
		}
		if n := taken(); n != before {
			t.Fatalf("%d rings are taken, expected %d", n, before)
		}
		seen := 0
		for _, s := range m.Views()[0].Read(&c) {
			for _, x := range s.Records {
				if x.Event.Kind() != Trigger {
					continue
				}
				seen++
				if want := loops[(turn+int(x.Peer))%len(loops)].name; s.Writer != want || x.Call != uint64(turn) {
					t.Fatalf("turn %d: %+v of %q, expected one of %q", turn, x, s.Writer, want)
				}
			}
		}
		if seen != 6 {
			t.Fatalf("turn %d: %d records, expected 6", turn, seen)
		}
	}
	if n := ranks[0].at.header().unwritten; n != 0 {
		t.Errorf("%d writers had no ring", n)
	}
	ranks[0].Switch(true)
	for _, l := range loops {
		l.Write(Trigger|Begin, 0, 0, 0, 0)
		l.Write(Trigger|End, 0, 0, 0, 0)
	}
	if n := ranks[0].at.header().unwritten; int(n) != len(loops)-(maxRings-before) {
		t.Errorf("%d writers had no ring, expected each of the others once", n)
	}
	for _, l := range loops {
		l.Close()
		l.Write(Trigger|Begin, 0, 0, 0, 0) // goes nowhere
	}
	if n := taken(); n != before {
		t.Errorf("%d rings are taken behind the end, expected %d", n, before)
	}
}

// Two records of a former writer of a ring are its own, for a reader that comes when another writer has the ring.
func TestRecordsOfAFormerWriter(t *testing.T) {
	m, ranks := rig(t, 1, true)
	var c Cursor
	m.Views()[0].Read(&c)
	var all []*Writer
	for {
		w := newWriter(ranks[0].at, fmt.Sprint("first ", len(all)), ranks[0].clock)
		if w == nil {
			break
		}
		all = append(all, w)
	}
	m.Views()[0].Read(&c) // nothing, but it sees the names
	all[0].Add(Mark|Instant, 1, 0, 0, 0)
	m.Views()[0].Read(&c)
	all[0].Add(Mark|Instant, 2, 0, 0, 0)
	all[0].end()
	newWriter(ranks[0].at, "second", ranks[0].clock).Add(Mark|Instant, 3, 0, 0, 0)
	got := ""
	for _, s := range m.Views()[0].Read(&c) {
		for _, x := range s.Records {
			got += fmt.Sprint(s.Writer, ": ", x.Call, "; ")
		}
	}
	if got != "first 0: 2; second: 3; " {
		t.Errorf("%q: expected record 2 of the first writer, and 3 of the second", got)
	}
}
