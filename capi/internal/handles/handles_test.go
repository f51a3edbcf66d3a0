package handles

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

const (
	cat = 1 + iota
	dog
)

func table() *Table { return New("cat", "dog") }

func add(t testing.TB, table *Table, kind int, value any) Handle {
	t.Helper()
	h, err := table.Add(kind, value)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHandlesLeadToTheirObjects(t *testing.T) {
	all := table()
	var list []Handle
	for i := range 1000 {
		list = append(list, add(t, all, cat+i%2, i))
	}
	for i, h := range list {
		if v, err := all.Get(cat+i%2, h); err != nil || v != i {
			t.Fatalf("handle %d: got %v, %v", i, v, err)
		}
	}
	for i, h := range list {
		if v, err := all.Remove(cat+i%2, h); err != nil || v != i {
			t.Fatalf("removing %d: got %v, %v", i, v, err)
		}
	}
	if n := all.Len(); n != 0 {
		t.Errorf("%d handles are left", n)
	}
}

func TestWrongHandlesAreExplained(t *testing.T) {
	all := table()
	gone, live := add(t, all, cat, "gone"), add(t, all, dog, "live")
	if _, err := all.Remove(cat, gone); err != nil {
		t.Fatal(err)
	}
	reused := add(t, all, cat, "next") // in the same slot
	for name, x := range map[string]struct {
		h    Handle
		want string
	}{
		"null":       {0, "the handle is NULL: expected a cat"},
		"address":    {0x7f0012345670, "is no handle of this library: expected a cat"},
		"garbage":    {^Handle(0), "is no handle of this library"},
		"other kind": {live, "is a dog: expected a cat"},
		"destroyed":  {gone, "is a cat that was destroyed"},
		"forged":     {reused + 5<<(kindBits+indexBits), "is no handle of this library"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []func(int, Handle) (any, error){all.Get, all.Remove} {
				if v, err := f(cat, x.h); v != nil || !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), x.want) {
					t.Errorf("got %v, %v: expected ErrInvalid with %q", v, err, x.want)
				}
			}
		})
	}
	if v, err := all.Get(cat, reused); err != nil || v != "next" {
		t.Errorf("the handle that is there: %v, %v", v, err)
	}
}

// Of many that remove a handle, one gets the object; lookups beside them find it or not.
func TestHandlesAreRemovedOnce(t *testing.T) {
	all := table()
	for range 200 {
		h := add(t, all, cat, "x")
		var group sync.WaitGroup
		got := make(chan any, 8)
		for range cap(got) {
			group.Go(func() {
				if v, err := all.Get(cat, h); err == nil && v != "x" {
					t.Errorf("a lookup found %v", v)
				}
				if v, err := all.Remove(cat, h); err == nil {
					got <- v
				}
				if _, err := all.Get(cat, h); err == nil {
					t.Error("a removed handle was found")
				}
			})
		}
		group.Wait()
		if len(got) != 1 {
			t.Fatalf("%d callers removed one handle", len(got))
		}
	}
	if n := len(*all.slots.Load()); n != 1 {
		t.Errorf("%d slots for one handle at a time", n)
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	all := table()
	h := add(t, all, cat, "x")
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := all.Get(cat, h); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
