package observe

import (
	"reflect"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
)

// A call is one record, unless its times or the number of its algorithm have no room there: then three say the same.
func TestRecordsOfACall(t *testing.T) {
	m, ranks := rig(t, 1, true)
	b := ranks[0].Board("world", 0, 2)
	v := m.Views()[0]
	var c Cursor
	for _, x := range []struct {
		chosen, end int64
		records     int
	}{{0, 0, 1}, {4095, 1<<20 - 1, 1}, {4096, 5000, 3}, {10, 1 << 20, 3}} {
		times := []int64{100, 100 + x.chosen, 100 + x.end}
		b.ring.clock = func() int64 { now := times[0]; times = times[1:]; return now }
		b.Begin(b.Clock(), collective.ReduceScatter, 1<<40, "ring", 0)
		if s := v.States()[0]; s.At != 100 {
			t.Errorf("a call that has begun at 100 is seen to have begun at %d", s.At)
		}
		b.End()
		if s := v.States()[0]; s.At != 0 {
			t.Errorf("no call is in progress, and one has begun at %d", s.At)
		}
		var got []Record
		for _, s := range v.Read(&c) {
			if s.Writer != "world" {
				continue
			}
			if len(s.Records) != x.records {
				t.Errorf("%+v: %d records", x, len(s.Records))
			}
			for i := range s.Records {
				got = s.Records[i].Parts(got)
			}
		}
		call := callOf(0, b.calls)
		want := []Record{
			{100, call, 1 << 40, Call | Begin, uint16(collective.ReduceScatter), framework.NoPeer},
			{100 + x.chosen, call, 1 << 40, Chosen | Instant, uint16(b.number), framework.NoPeer},
			{100 + x.end, call, 1 << 40, Call | End, uint16(collective.ReduceScatter), framework.NoPeer},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %+v, expected %+v", x, got, want)
		}
	}
}

// A call of which records were switched on or off while it went on is in none of them, or whole.
func TestCallsDuringASwitch(t *testing.T) {
	m, ranks := rig(t, 1, false)
	r, v := ranks[0], m.Views()[0]
	b := r.Board("world", 0, 2)
	var c Cursor
	for range 100 {
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
		r.Switch(true)
		b.End()
		if list, _ := records(v, &c); len(list) != 0 {
			t.Fatalf("%d records of a call that began without: expected none", len(list))
		}
		b.Begin(b.Clock(), collective.AllReduce, 8, "ring", 0)
		r.Switch(false)
		b.End()
		if list, _ := records(v, &c); len(list) != 3 {
			t.Fatalf("%d records of a call that began with them: expected 3", len(list))
		}
	}
}

func TestPartsOfALaunch(t *testing.T) {
	x := Record{Time: 1000, Call: 7, Bytes: 900 | 400<<16 | 300<<32 | 50<<48, Event: Kernel | Total, Block: 60, Peer: 3}
	part := func(at int64, e Event, peer int32) Record { return Record{Time: at, Call: 7, Event: e, Peer: peer} }
	want := []Record{part(1000, Kernel|Begin, -1), part(400, Wait|Total, 3), part(300, Copy|Total, -1), part(50, Reduce|Total, -1), part(60, Packets|Total, -1), part(1900, Kernel|End, -1)}
	if got := x.Parts(nil); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, expected %+v", got, want)
	}
}
