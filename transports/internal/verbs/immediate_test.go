package verbs

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/memfd"
	"github.com/mscclpp-go/mscclpp/framework/ring"
)

// counters is a connection without an adapter: a mailbox that the peer has written, and
// memory whose words it may raise.
func counters(t testing.TB, bytes uint64) (tr *Transport, in *incoming, memory *memfd.Memory, id framework.ID) {
	t.Helper()
	box, err := memfd.New("mailbox", boxBytes, memfd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if memory, err = memfd.New("counters", bytes, memfd.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(box.Close(), memory.Close()); err != nil {
			t.Error(err)
		}
	})
	tr = &Transport{}
	f := &flow{dev: &adapter{name: "test", port: 1}, box: &mailbox{memory: box}, peer: 3}
	f.table = newDestinations(f, 8)
	id = tr.objects.Keep(&registration{t: tr, memory: memory, mapped: true, region: &region{addr: uint64(uintptr(memory.Addr())), bytes: bytes}})
	return tr, &incoming{flow: f}, memory, id
}

// A peer may write anything to the table and send any immediate: a word of the memory rises by at
// most the largest value of an immediate, or the connection ends with an error that names the peer,
// and nothing else is written.
func FuzzImmediate(f *testing.F) {
	const bytes = 256
	f.Add(uint32(1), uint32(0), uint64(0), true)
	f.Add(uint32(1<<countBits|5), uint32(0), uint64(bytes-8), true)
	f.Add(uint32(2<<countBits|1), uint32(0), uint64(bytes-7), true)
	f.Add(uint32(2<<countBits|1), uint32(0), uint64(4), true)
	f.Add(uint32(3<<countBits|1), uint32(0), ^uint64(0), true)
	f.Add(uint32(3<<countBits), uint32(0), uint64(0), true) // no signal at all
	f.Add(uint32(4<<countBits|countMask), uint32(0), uint64(16), false)
	f.Add(uint32(askEntry<<countBits|1), uint32(0), uint64(0), true)
	f.Add(^uint32(0), uint32(0), uint64(0), true)
	f.Add(uint32(1), uint32(12), uint64(0), true)
	f.Fuzz(func(t *testing.T, value, status uint32, offset uint64, known bool) {
		tr, in, memory, id := counters(t, bytes)
		if !known {
			id++
		}
		n, count := value>>countBits, uint64(value&countMask)
		entry := in.flow.box.memory.Bytes()[boxIn+n*boxEntry:]
		binary.LittleEndian.PutUint64(entry, uint64(id))
		binary.LittleEndian.PutUint64(entry[8:], offset)
		in.take(tr, completion{status: status, value: value})

		inside := memory.Len() >= 8 && offset <= memory.Len()-8 && offset%8 == 0 && n != askEntry
		fails := status != 0 || count == 0 || known && n != askEntry && !inside
		err := in.flow.problem()
		if (err != nil) != fails {
			t.Fatalf("immediate %#x, status %d, counter at %d of %d bytes: %v: expected an error: %v", value, status, offset, bytes, err, fails)
		}
		if fails && framework.PeerOf(err) != 3 {
			t.Errorf("%v: expected an error that names rank 3", err)
		}
		want := make([]byte, bytes)
		if !fails && known && inside {
			binary.LittleEndian.PutUint64(want[offset:], count)
		}
		if got := memory.Bytes()[:bytes]; !slices.Equal(got, want) {
			t.Errorf("immediate %#x for the counter at %d: %x, expected %x", value, offset, got, want)
		}
		if asked := n == askEntry && !fails; in.asked != asked {
			t.Errorf("immediate %#x: asked to tell: %v", value, in.asked)
		}
		if fails {
			return
		}
		// The same again is a signal that came twice.
		in.take(tr, completion{value: value})
		if err := in.flow.problem(); !errors.Is(err, framework.ErrPeer) {
			t.Errorf("immediate %#x twice: %v: expected ErrPeer", value, err)
		}
	})
}

// For any count that a peer reports, a signal is sent where it has room, and a sender whose
// peer reports more signals than there were does not wait for ever.
func FuzzCredit(f *testing.F) {
	f.Add(uint64(0), uint64(0))
	f.Add(uint64(8), uint64(0))
	f.Add(uint64(8), uint64(1))
	f.Add(uint64(8), uint64(9))
	f.Add(uint64(3), ^uint64(0))
	f.Add(^uint64(0)-4, ^uint64(0)-8)
	f.Fuzz(func(t *testing.T, sent, counted uint64) {
		_, in, _, _ := counters(t, 64)
		d := in.flow.table
		d.sent = sent
		binary.LittleEndian.PutUint64(in.flow.box.memory.Bytes()[boxCredit:], counted)
		if counted <= sent && sent-counted >= d.limit {
			if d.room() {
				t.Errorf("%d signals of %d were counted: expected no room for more than %d", counted, sent, d.limit)
			}
			return // and take waits
		}
		if !d.room() {
			t.Errorf("%d signals of %d were counted: expected that take is called, which knows", counted, sent)
		}
		var halt atomic.Bool
		stop := time.AfterFunc(10*time.Second, func() { halt.Store(true) })
		defer stop.Stop()
		immediate, err := d.take(5, &halt)
		switch {
		case counted > sent:
			if !errors.Is(err, framework.ErrPeer) {
				t.Errorf("%d signals of %d were counted: %v: expected ErrPeer", counted, sent, err)
			}
		case err != nil || immediate != 5<<countBits|1 || d.sent != sent+1:
			t.Errorf("immediate %#x, %v, %d sent: expected %#x, and %d", immediate, err, d.sent, 5<<countBits|1, sent+1)
		}
	})
}

// Receptions that are flushed are no reason: what is said is which request has failed, and how.
func TestFlushedReceptionsBlameTheRequest(t *testing.T) {
	r := newRig(t, fake(t), Immediate)
	f := r.proxy.(*proxy).memory[1].flow
	path := filepath.Join(t.TempDir(), "status")
	if err := os.WriteFile(path, []byte("12"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_VERBS_FAIL", path)
	if err := f.ask(nil); err != nil { // only a thread that looks for receptions takes its completion
		t.Fatal(err)
	}
	for limit := time.Now().Add(4 * time.Minute); !f.failed.Load() && time.Now().Before(limit); {
		ring.Yield()
	}
	wantError(t, f.problem(), framework.ErrPeer, "device fake0 port 2", "request 2 of 2 to fake0", "status 12 (retries exceeded")
}
