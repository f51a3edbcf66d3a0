package main

// #include "internal.h"
import "C"

import (
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/capi/internal/handles"
	"github.com/mscclpp-go/mscclpp/framework"
)

// object is a thing with a handle that belongs to a communicator.
type object[T any] struct {
	owner *communicator
	value T
	close func() error
}

func (o *object[T]) belongs() *communicator { return o.owner }
func (o *object[T]) free() error            { return o.close() }

// freeable is an object of any type.
type freeable interface {
	belongs() *communicator
	free() error
}

// adopt gives an object of a communicator a handle; what cannot have one is freed.
func adopt[T any](c *communicator, kind int, value T, free func() error, out *C.uintptr_t) error {
	if err := c.list(kind, &object[T]{owner: c, value: value, close: free}, out); err != nil {
		return errors.Join(err, free()) // which may need the communicator's lock
	}
	return nil
}

// list gives an object a handle.
func (c *communicator) list(kind int, o freeable, out *C.uintptr_t) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errDestroyed
	}
	h, err := table.Add(kind, o)
	if err != nil {
		return err
	}
	c.objects[h] = kind
	*out = C.uintptr_t(h)
	return nil
}

// objectOf returns what a handle stands for, which must belong to a communicator that works.
func objectOf[T any](kind int, h C.uintptr_t) (*object[T], error) {
	v, err := table.Get(kind, handles.Handle(h))
	if err != nil {
		return nil, err
	}
	return v.(*object[T]), nil
}

// within is objectOf for an object that must belong to a communicator.
func within[T any](c *communicator, kind int, h C.uintptr_t) (T, error) {
	o, err := objectOf[T](kind, h)
	if err == nil && o.owner != c {
		err = fmt.Errorf("%w: handle %#x belongs to another communicator", framework.ErrInvalid, uint64(h))
	}
	if err != nil {
		var none T
		return none, err
	}
	return o.value, nil
}

// disown ends the handles of all objects of a communicator. It frees proxies, which use the communicator, and modules, which
// it does not know; it closes all others itself.
func (c *communicator) disown() error {
	c.mu.Lock()
	c.ended = true
	objects := c.objects
	c.objects = nil
	c.mu.Unlock()
	var all []error
	for h, kind := range objects {
		if v, err := table.Get(kind, h); err == nil && (kind == kindProxy || kind == kindModule) { // a proxy's function still uses its handle
			all = append(all, v.(freeable).free())
		}
		_, _ = table.Remove(kind, h) // unless another thread frees it now
	}
	return errors.Join(all...)
}

//export mscclppGoFree
func mscclppGoFree(h C.uintptr_t, kind C.int, f *C.struct_failure) (r C.int32_t) {
	defer recovered(f, &r)
	find := table.Remove
	if kind == kindProxy { // its function still uses the handle
		find = table.Get
	}
	v, err := find(int(kind), handles.Handle(h))
	if err != nil {
		return fail(f, err)
	}
	o := v.(freeable)
	c := o.belongs()
	c.mu.Lock()
	delete(c.objects, handles.Handle(h))
	c.mu.Unlock()
	err = o.free()
	_, _ = table.Remove(int(kind), handles.Handle(h)) // a second time for most
	return fail(f, err)
}
