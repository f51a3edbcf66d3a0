package ids

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// thing records in which order things ended.
type thing interface{ end() }

type endpoint struct {
	name  string
	ended *[]string
}

func (e *endpoint) end() { *e.ended = append(*e.ended, e.name) }

type connection struct{ endpoint }

// proxy is a user that records its notices, and when they came.
type proxy struct {
	reported [][]framework.ID
	ended    *[]string
	after    int // things that had ended at its last notice
}

func (p *proxy) Forget(closed map[framework.ID]bool) {
	var all []framework.ID
	for id := range closed {
		all = append(all, id)
	}
	slices.Sort(all)
	p.reported, p.after = append(p.reported, all), len(*p.ended)
}

func TestFind(t *testing.T) {
	var table Table[thing]
	a, c := &endpoint{}, &connection{}
	ida, idc := table.Keep(a), table.Keep(c)
	if got, err := Find[*endpoint](&table, ida, "endpoint"); err != nil || got != a {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Find[thing](&table, idc, "thing"); err != nil || got != c {
		t.Errorf("%v, %v", got, err)
	}
	for _, id := range []framework.ID{0, idc, idc + 1, 1 << 40} {
		got, err := Find[*endpoint](&table, id, "endpoint")
		if got != nil || !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("id %d is no endpoint", id)) {
			t.Errorf("%d: %v, %v: expected ErrInvalid that names the id", id, got, err)
		}
	}
}

// Objects that were kept on a thing end before it does, after all users have let go of both;
// and nothing else ends.
func TestClose(t *testing.T) {
	var ended []string
	var table Table[thing]
	first := table.Keep(&endpoint{"first", &ended})
	other := table.Keep(&endpoint{"other", &ended})
	conn, err := table.KeepOn(first, &connection{endpoint{"connection", &ended}})
	if err != nil {
		t.Fatal(err)
	}
	stays, gone := &proxy{ended: &ended}, &proxy{ended: &ended}
	table.Enter(stays)
	table.Enter(stays) // is notified once all the same
	table.Enter(gone)
	table.Leave(gone)
	if n := table.Users(); n != 1 {
		t.Errorf("%d users, expected 1", n)
	}
	table.Close(first, thing.end)
	if want := []string{"connection", "first"}; !slices.Equal(ended, want) {
		t.Errorf("%v ended, expected %v", ended, want)
	}
	if len(stays.reported) != 1 || !slices.Equal(stays.reported[0], []framework.ID{first, conn}) || stays.after != 0 || gone.reported != nil {
		t.Errorf("%+v and %+v: expected the first to be told of both ids before anything ended", stays, gone)
	}
	for _, id := range []framework.ID{first, conn, 0, 99} {
		table.Close(id, thing.end) // however often
	}
	if len(stays.reported) != 1 || len(ended) != 2 || table.Len() != 1 {
		t.Errorf("told %v, ended %v, %d left: expected nothing more", stays.reported, ended, table.Len())
	}
	if _, err := Find[thing](&table, other, "thing"); err != nil {
		t.Errorf("another endpoint is gone as well: %v", err)
	}
	if next := table.Keep(&endpoint{}); next <= conn {
		t.Errorf("id %d was given before", next)
	}
}

// A connection that ends leaves its endpoint, which can be connected again.
func TestBaseOutlivesWhatIsOnIt(t *testing.T) {
	var ended []string
	var table Table[thing]
	base := table.Keep(&endpoint{"base", &ended})
	for range 2 {
		conn, err := table.KeepOn(base, &connection{endpoint{"connection", &ended}})
		if err != nil {
			t.Fatal(err)
		}
		table.Close(conn, thing.end)
	}
	if table.Len() != 1 || !slices.Equal(ended, []string{"connection", "connection"}) {
		t.Errorf("%d things are left, %v ended", table.Len(), ended)
	}
	table.Close(base, thing.end)
	if id, err := table.KeepOn(base, &connection{}); id != 0 || !errors.Is(err, framework.ErrInvalid) || table.Len() != 0 {
		t.Errorf("kept on what is closed: %d, %v, %d left: expected ErrInvalid", id, err, table.Len())
	}
}

// Of connections that are made while their endpoint ends, none is left behind: each
// ends with it or is refused.
func TestConnectWhileClosing(t *testing.T) {
	var table Table[*endpoint]
	var ended []string
	base := table.Keep(&endpoint{"base", &ended})
	start := make(chan struct{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			<-start
			for range 100 {
				if _, err := table.KeepOn(base, &endpoint{"connection", &ended}); err != nil && !errors.Is(err, framework.ErrInvalid) {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	table.Close(base, (*endpoint).end) // one goroutine ends everything, so ended needs no lock
	group.Wait()
	if n := table.Len(); n != 0 {
		t.Errorf("%d connections outlive their endpoint", n)
	}
	if len(ended) == 0 || ended[len(ended)-1] != "base" {
		t.Errorf("%d things ended, and the endpoint is not the last", len(ended))
	}
}
