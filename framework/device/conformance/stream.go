package conformance

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
)

func streamTests() []test {
	return []test{
		{"stream/order", "work of a stream is done in order", func(t *T) {
			d := t.streaming()
			s, m := d.stream(), d.alloc(3*4096)
			d.write(m.Addr(), pattern(1, 4096))
			for range 200 {
				t.must(d.streams.Copy(s, m.Addr()+4096, m.Addr(), 4096), "copy")
				t.must(d.streams.Memset(s, m.Addr(), 0x5a, 4096), "set")
				t.must(d.streams.Copy(s, m.Addr()+8192, m.Addr()+4096, 4096), "copy")
				t.must(d.streams.Copy(s, m.Addr(), m.Addr()+8192, 4096), "copy")
			}
			d.settle(s)
			t.same(d.read(m.Addr(), 4096), pattern(1, 4096), "what went round 200 times")
		}},
		{"stream/independent", "a stream that waits delays no other, nor the default one", func(t *T) {
			d := t.streaming()
			waits, goes, g := d.stream(), d.stream(), d.latch()
			m := d.alloc(32)
			d.holdUp(waits, g)
			t.must(d.streams.Write(waits, m.Addr(), 1), "write")
			t.must(d.streams.Write(goes, m.Addr()+8, 2), "write")
			t.must(d.streams.Write(0, m.Addr()+16, 3), "write")
			d.settle(goes)
			d.settle(0)
			if state, err := d.streams.Query(waits); err != nil || state != device.StreamBusy {
				t.errorf("the stream that waits is in state %d, %v: expected busy", state, err)
			}
			if a, b, c := d.word(m.Addr()), d.word(m.Addr()+8), d.word(m.Addr()+16); a != 0 || b != 2 || c != 3 {
				t.errorf("words are %d, %d, %d: expected 0, 2, 3", a, b, c)
			}
			g.open()
			d.settle(waits)
			if got := d.word(m.Addr()); got != 1 {
				t.errorf("the word behind the wait is %d", got)
			}
		}},
		{"stream/many", "many streams wait at the same time", func(t *T) {
			d := t.streaming()
			g := d.latch()
			var all []device.Stream
			m := d.alloc(8 * 16)
			for i := range uintptr(16) {
				s := d.stream()
				d.holdUp(s, g)
				t.must(d.streams.Write(s, m.Addr()+8*i, 1), "write")
				all = append(all, s)
			}
			g.open()
			for _, s := range all {
				d.settle(s)
			}
			t.same(d.read(m.Addr(), 1), []byte{1}, "the first word")
		}},
		{"stream/sync", "sync returns when the work has ended", func(t *T) {
			d := t.streaming()
			s, m := d.stream(), d.alloc(1<<20)
			for i := range 20 {
				t.must(d.streams.Memset(s, m.Addr(), byte(i), 1<<20), "set")
			}
			t.must(d.streams.Sync(s), "sync")
			if state, err := d.streams.Query(s); err != nil || state != device.StreamIdle {
				t.errorf("after sync: state %d, %v: expected idle", state, err)
			}
			if got := d.read(m.Addr()+1<<20-1, 1); got[0] != 19 {
				t.errorf("the last byte is %d: expected 19", got[0])
			}
		}},
		{"stream/closed-with-work", "what was enqueued on a stream is done when the stream is closed", func(t *T) {
			d := t.streaming()
			s, err := d.streams.NewStream()
			t.must(err, "stream")
			g, m := d.latch(), d.alloc(8)
			d.holdUp(s, g)
			t.must(d.streams.Write(s, m.Addr(), 77), "write")
			began := time.Now()
			t.must(d.streams.CloseStream(s), "close")
			if time.Since(began) > t.o.Limit/4 {
				t.errorf("close took %v, while the stream waited", time.Since(began))
			}
			g.open()
			t.until("the work of the closed stream", func() bool { return d.word(m.Addr()) == 77 })
		}},
		{"stream/words", "a word that the host sees comes behind the data before it", func(t *T) {
			d := t.streaming()
			s, g := d.stream(), d.latch()
			data, err := d.AllocHost(1 << 16)
			t.must(err, "memory of the host")
			t.cleanup(data.Close, "free memory of the host")
			m := d.alloc(1 << 16)
			for i := range 50 {
				d.write(m.Addr(), pattern(i, 1<<16))
				t.must(d.streams.Copy(s, data.Addr(), m.Addr(), 1<<16), "copy to the host")
				t.must(d.streams.Write(s, g.addr, uint64(i)+1), "write")
				t.until("the word", func() bool { return atomic.LoadUint64(g.word) == uint64(i)+1 })
				t.same(data.HostBytes(), pattern(i, 1<<16), "data before the word")
			}
		}},
		{"stream/waits", "a stream waits for a word that the host stores, in the cyclic order of numbers", func(t *T) {
			d := t.streaming()
			s, g, m := d.stream(), d.latch(), d.alloc(16)
			atomic.StoreUint64(g.word, 1<<64-2)
			if err := d.streams.WaitValue(s, g.addr, 1); err != nil {
				t.needs(false, "waits for words: "+err.Error())
			}
			t.must(d.streams.Write(s, m.Addr(), 5), "write")
			if got := d.word(m.Addr()); got != 0 {
				t.errorf("the stream went on at 2^64-2, waiting for 1")
			}
			atomic.StoreUint64(g.word, 3)
			d.settle(s)
			if got := d.word(m.Addr()); got != 5 {
				t.errorf("the stream did not go on at 3, waiting for 1")
			}
		}},
		{"stream/kernels-see-words", "a kernel sees the word that a copy engine stores, and the data before it", func(t *T) {
			d := t.streaming()
			add, _ := d.kernels()
			kernels, copies := d.stream(), d.stream()
			m := d.alloc(4096)
			for i := range uint64(50) {
				t.must(d.streams.Memset(copies, m.Addr(), 0, 2048), "set")
				t.must(d.streams.Sync(copies), "sync")
				d.launch(add, kernels, arguments{uint64(m.Addr()), uint64(m.Addr()) + 2040, 100, 1})
				t.must(d.streams.Memset(copies, m.Addr(), 1, 800), "set")
				t.must(d.streams.Write(copies, m.Addr()+2040, 1), "write")
				d.settle(kernels)
				if got := d.word(m.Addr() + 8*99); got != 0x0101010101010102 {
					t.fatalf("round %d: the kernel found %#x before it added 1", i, got-1)
				}
			}
		}},
		{"stream/processors", "a stream has no more processors than the device, and asking spoils no recording", func(t *T) {
			d := t.streaming()
			s, m := d.stream(), d.alloc(8)
			if n := d.streams.StreamProcessors(s); n < 0 || n > d.Info().SMs {
				t.errorf("a stream has %d processors of %d", n, d.Info().SMs)
			}
			g := d.capture(s, func() {
				_ = d.streams.StreamProcessors(s)
				t.must(d.streams.Write(s, m.Addr(), 7), "write")
			})
			t.must(g.Launch(s), "launch")
			d.settle(s)
			if got := d.word(m.Addr()); got != 7 {
				t.errorf("the word is %d: expected 7, which was recorded", got)
			}
		}},
		{"stream/numbers", "the number of a stream is its own, whatever its handle was before, and asking for it spoils no recording", func(t *T) {
			d := t.streaming()
			s := d.stream()
			first := d.streams.StreamID(s)
			t.needs(first != 0, "streams have no numbers")
			seen := map[uint64]bool{first: true}
			for range 20 {
				other, err := d.streams.NewStream()
				t.must(err, "stream")
				if id := d.streams.StreamID(other); id == 0 || seen[id] {
					t.errorf("number %d of a stream: expected one that no stream has had", id)
				} else {
					seen[id] = true
				}
				t.must(d.streams.CloseStream(other), "close a stream")
			}
			if again := d.streams.StreamID(s); again != first {
				t.errorf("the number of a stream was %d, and is %d", first, again)
			}
			m := d.alloc(8)
			if err := d.streams.BeginCapture(s, native.CaptureRelaxed); err != nil {
				return // there are no graphs
			}
			id := d.streams.StreamID(s)
			t.must(d.streams.Write(s, m.Addr(), 1), "write")
			g, err := d.streams.EndCapture(s)
			t.must(err, "end a capture in which the number was asked for")
			t.must(g.Close(), "close a graph")
			if id != 0 && id != first {
				t.errorf("the number of a stream that records is %d: expected %d, or 0", id, first)
			}
		}},
		{"stream/priorities", "the range of priorities holds what it says, and more is taken for the nearest", func(t *T) {
			d := t.streaming()
			least, greatest := d.streams.Priorities()
			if greatest > least {
				t.errorf("priorities %d to %d: expected the greatest to be the smaller number", least, greatest)
			}
			for _, p := range []int{least, greatest, least + 10, greatest - 10} {
				s, err := d.streams.NewPriorityStream(p)
				t.must(err, "stream with a priority")
				t.must(d.streams.CloseStream(s), "close")
			}
		}},
	}
}

// holdUp has a stream wait for the latch, by a wait or by a kernel.
func (r *rig) holdUp(s device.Stream, g latch) {
	if err := r.streams.WaitValue(s, g.addr, 1); err == nil {
		return
	}
	add, _ := r.kernels()
	r.launch(add, s, arguments{latch: uint64(g.addr)})
}

func eventTests() []test {
	return []test{
		{"event/streams", "a stream waits for what an event marks on another one", func(t *T) {
			d := t.marking()
			first, second, g := d.stream(), d.stream(), d.latch()
			m := d.alloc(16)
			e := d.event(false)
			d.holdUp(first, g)
			t.must(d.streams.Write(first, m.Addr(), 1), "write")
			t.must(e.Record(first), "record")
			t.must(e.Wait(second), "wait")
			t.must(d.streams.Copy(second, m.Addr()+8, m.Addr(), 8), "copy")
			if done, err := e.Query(); done || err != nil {
				t.errorf("the event is reached before its work, %v", err)
			}
			g.open()
			d.settle(second)
			if got := d.word(m.Addr() + 8); got != 1 {
				t.errorf("the second stream did not wait: the word is %d", got)
			}
			if done, err := e.Query(); !done || err != nil {
				t.errorf("the event is not reached after its work, %v", err)
			}
		}},
		{"event/unrecorded", "an event that marks nothing is waited for by nobody", func(t *T) {
			d := t.marking()
			s, e := d.stream(), d.event(false)
			t.must(e.Wait(s), "wait")
			d.settle(s)
			t.must(e.Sync(), "sync")
		}},
		{"event/recorded-again", "a wait is for what was marked when it was enqueued", func(t *T) {
			d := t.marking()
			first, second, g := d.stream(), d.stream(), d.latch()
			e := d.event(false)
			t.must(e.Record(first), "record")
			t.must(e.Wait(second), "wait")
			d.holdUp(first, g)
			t.must(e.Record(first), "record again")
			d.settle(second)
			g.open()
			t.must(e.Sync(), "sync")
		}},
		{"event/closed", "who waits for an event is not disturbed when it is closed", func(t *T) {
			d := t.marking()
			first, second, g := d.stream(), d.stream(), d.latch()
			m := d.alloc(8)
			e, err := d.events.NewEvent(false)
			t.must(err, "event")
			d.holdUp(first, g)
			t.must(d.streams.Write(first, m.Addr(), 1), "write")
			t.must(e.Record(first), "record")
			t.must(e.Wait(second), "wait")
			t.must(e.Close(), "close the event")
			if state, err := d.streams.Query(second); err != nil || state != device.StreamBusy {
				t.errorf("the stream that waits is in state %d, %v: expected busy", state, err)
			}
			g.open()
			d.settle(second)
			if got := d.word(m.Addr()); got != 1 {
				t.errorf("the second stream did not wait")
			}
		}},
		{"event/times", "events with time are apart by no less than the work between them", func(t *T) {
			d := t.marking()
			s := d.stream()
			start, err := d.events.NewEvent(true)
			if err != nil {
				t.needs(false, "times: "+err.Error())
			}
			t.cleanup(start.Close, "close an event")
			end, m := d.event(true), d.alloc(8<<20)
			t.must(start.Record(s), "record")
			for range 4 {
				t.must(d.streams.Memset(s, m.Addr(), 1, 8<<20), "set")
			}
			t.must(end.Record(s), "record")
			t.must(end.Sync(), "sync")
			if took, err := end.Since(start); err != nil || took <= 0 || took > t.o.Limit {
				t.errorf("32 MiB were set within %v, %v", took, err)
			}
		}},
		{"event/all", "an event of all streams comes behind closed ones, too", func(t *T) {
			d := t.marking()
			e := d.event(false)
			if err := e.RecordAll(); err != nil {
				t.needs(false, "events of all streams: "+err.Error())
			}
			g := d.latch()
			s, err := d.streams.NewStream()
			t.must(err, "stream")
			d.holdUp(s, g)
			t.must(d.streams.CloseStream(s), "close")
			t.must(e.RecordAll(), "record")
			if done, err := e.Query(); done || err != nil {
				t.errorf("the event is reached before the closed stream, %v", err)
			}
			g.open()
			t.must(e.Sync(), "sync")
		}},
	}
}

func failureTests() []test {
	return []test{
		{"failure/words", "an error has a name, and says which function failed", func(t *T) {
			_, err := t.device().Load([]byte("not an image"))
			var e *native.Error
			if !errors.As(err, &e) || e.Name == "" || e.Call == "" {
				t.errorf("the error of an image that is none is %v: expected one with a name, and with the function", err)
			}
		}},
		{"failure/streams", "a stream that was closed, or never was, is refused", func(t *T) {
			d := t.streaming()
			s, err := d.streams.NewStream()
			t.must(err, "stream")
			t.must(d.streams.CloseStream(s), "close")
			t.refused(d.streams.CloseStream(s), "close again", framework.ErrInvalid)
			t.refused(d.streams.CloseStream(0), "close the default stream", framework.ErrInvalid)
		}},
		{"failure/closed", "a closed device refuses everything, and does no harm", func(t *T) {
			d := t.device()
			t.must(d.Close(), "close")
			_, err := d.Alloc(4096)
			t.refused(err, "alloc", framework.ErrClosed)
			_, err = d.Load([]byte("x"))
			t.refused(err, "load", framework.ErrClosed)
			t.refused(d.WriteAt(make([]byte, 8), 4096), "upload", framework.ErrClosed)
			t.must(d.Close(), "close again")
		}},
		{"failure/memory-outlives", "memory, modules and streams may be closed after their device", func(t *T) {
			d, err := t.o.Backend.Open(t.o.Index, t.o.Options)
			t.must(err, "open")
			m, err := d.Alloc(4096)
			t.must(err, "alloc")
			t.must(d.Close(), "close the device")
			t.must(m.Close(), "free")
		}},
	}
}
