package proxy

import (
	"fmt"
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// While records are wanted, a copier says which triggers it takes, when the copy engine has them, and how far that has come.
func TestCopiesAreObserved(t *testing.T) {
	rank, err := observe.Open(observe.Facts{Job: fmt.Sprint("copier-", os.Getpid()), Size: 1, Local: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer rank.Close()
	view := rank.Own().Views()[0]
	c := newCopyingWith(t, 2, false, Options{Records: rank.Loop("copy engine")})
	flush := func(peer uint64) {
		t.Helper()
		pos := c.push(t, trigger(kernel.TriggerFlush, peer, 0, 0, 0))
		must(t, c.ring.WaitFlushed(bound(t), uint32(peer), pos))
	}
	flush(0) // not recorded
	rank.Switch(true)
	const puts = 40
	for n := range puts {
		c.push(t, trigger(kernel.TriggerData|kernel.TriggerSignal, uint64(n%2), 0, 0, 1024))
	}
	flush(0)
	flush(1)
	must(t, c.copier.Stop(bound(t)))
	begun, ended, bytes := 0, 0, uint64(0)
	posted, done := map[int32][]uint64{}, map[int32]uint64{}
	var cursor observe.Cursor
	for _, s := range view.Read(&cursor) {
		for _, x := range s.Records {
			switch x.Event {
			case observe.Trigger | observe.Begin:
				begun++
			case observe.Trigger | observe.End:
				ended++
			case observe.Posted | observe.Instant:
				bytes += x.Bytes
				posted[x.Peer] = append(posted[x.Peer], x.Call)
			case observe.Completed | observe.Instant:
				list := posted[x.Peer]
				if len(list) == 0 || x.Call > list[len(list)-1] || done[x.Peer] != 0 && x.Call <= done[x.Peer] {
					t.Errorf("%+v: expected the end of something that was posted, behind %d", x, done[x.Peer])
				}
				done[x.Peer] = x.Call
			}
		}
	}
	if begun != puts+2 || ended != begun || bytes != puts*1024 {
		t.Errorf("%d begun, %d ended, %d bytes posted: expected %d and %d", begun, ended, bytes, puts+2, puts*1024)
	}
	for peer, list := range posted {
		if done[peer] != list[len(list)-1] {
			t.Errorf("to rank %d all up to %d is complete, expected %d", peer, done[peer], list[len(list)-1])
		}
	}
}
