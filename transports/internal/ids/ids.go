// Package ids numbers what a transport has made, and knows what ends with what: a
// connection with its endpoint, and what proxies have bound with either.
package ids

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// User is notified of ids before their objects end: a proxy, whose slots cite them.
type User interface {
	// Forget returns when nothing that was bound with these ids is used any more.
	Forget(closed map[framework.ID]bool)
}

// Table maps ids to what they stand for. Its zero value is empty.
type Table[T any] struct {
	mu    sync.Mutex
	last  framework.ID
	made  map[framework.ID]entry[T]
	users map[User]bool
}

type entry[T any] struct {
	thing T
	base  framework.ID // the number that it ends with; 0 for none
}

// Keep gives a thing its id. None is given twice.
func (t *Table[T]) Keep(x T) framework.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keep(entry[T]{thing: x})
}

// KeepOn gives an id to a thing that ends when base does. The error is ErrInvalid if
// base has ended.
func (t *Table[T]) KeepOn(base framework.ID, x T) (framework.ID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.made[base]; !ok {
		return 0, fmt.Errorf("%w: id %d was closed meanwhile", framework.ErrInvalid, base)
	}
	return t.keep(entry[T]{x, base}), nil
}

func (t *Table[T]) keep(e entry[T]) framework.ID {
	if t.made == nil {
		t.made = map[framework.ID]entry[T]{}
	}
	t.last++
	t.made[t.last] = e
	return t.last
}

// Find returns what id stands for, which has to be an X; what names that in the error,
// ErrInvalid. It may be closed while it is used.
func Find[X, T any](t *Table[T], id framework.ID, what string) (X, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := any(t.made[id].thing).(X)
	if !ok {
		return x, fmt.Errorf("%w: id %d is no %s, or was closed", framework.ErrInvalid, id, what)
	}
	return x, nil
}

// Len is the number of things.
func (t *Table[T]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.made)
}

// Enter notifies a user of objects that end, until it leaves.
func (t *Table[T]) Enter(u User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users == nil {
		t.users = map[User]bool{}
	}
	t.users[u] = true
}

// Leave is for users that need no notice any more.
func (t *Table[T]) Leave(u User) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.users, u)
}

// Users is the number of users that entered and did not leave.
func (t *Table[T]) Users() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.users)
}

// Close takes an id out, and those of what was kept on it; has all users forget them;
// and then ends the things, the youngest first. An id that is not there is none to
// close. No lock is held while users and things are called.
func (t *Table[T]) Close(id framework.ID, end func(T)) {
	t.mu.Lock()
	if _, ok := t.made[id]; !ok {
		t.mu.Unlock()
		return
	}
	closed := map[framework.ID]bool{}
	things := map[framework.ID]T{}
	for other, e := range t.made {
		if other == id || e.base == id {
			closed[other], things[other] = true, e.thing
			delete(t.made, other)
		}
	}
	users := slices.Collect(maps.Keys(t.users))
	t.mu.Unlock()
	for _, u := range users {
		u.Forget(closed)
	}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(things))) {
		end(things[id])
	}
}
