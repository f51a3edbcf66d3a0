package host

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Add makes the device a member. As on hardware, nothing can be bound before.
func (o *Object) Add() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fmt.Errorf("host object add: %w", framework.ErrClosed)
	}
	o.added = true
	return nil
}

// Bind puts memory into a slot of the window: the rank's own, or that behind
// share. The offset must be a multiple of a page.
func (o *Object) Bind(slot int, own device.Memory, share *framework.Share, offset, bytes uint64) error {
	if share != nil {
		return o.bind(slot, []framework.Share{*share}, offset, bytes)
	}
	if own == nil {
		return fmt.Errorf("host object bind slot %d: %w: neither memory nor share", slot, framework.ErrInvalid)
	}
	shares, err := own.Export()
	if err != nil {
		return fmt.Errorf("host object bind slot %d: %w", slot, err)
	}
	defer framework.Parcel{Shares: shares}.Close()
	return o.bind(slot, shares, offset, bytes)
}

func (o *Object) bind(slot int, shares []framework.Share, offset, bytes uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return fmt.Errorf("host object bind slot %d: %w", slot, framework.ErrClosed)
	case !o.added:
		return fmt.Errorf("host object bind slot %d: %w: the device was not added", slot, framework.ErrInvalid)
	case slot < 0 || slot >= o.ranks:
		return fmt.Errorf("host object bind: %w: slot %d: expected 0 to %d", framework.ErrInvalid, slot, o.ranks-1)
	case o.bound[slot] != 0:
		return fmt.Errorf("host object bind: %w: slot %d is bound already", framework.ErrInvalid, slot)
	case bytes == 0 || bytes > o.bytes:
		return fmt.Errorf("host object bind slot %d: %w: %d bytes: expected 1 to %d", slot, framework.ErrInvalid, bytes, o.bytes)
	}
	for _, s := range shares {
		if s.Kind != framework.ShareMemFD {
			continue
		}
		if err := o.space.Map(uint64(slot)*o.stride, s.FD, offset, bytes); err != nil {
			return fmt.Errorf("host object bind slot %d: %w", slot, err)
		}
		o.bound[slot] = bytes
		return nil
	}
	return fmt.Errorf("host object bind slot %d: %w: memory has no share of kind %s", slot, framework.ErrUnsupported, framework.ShareMemFD)
}

// Map returns the window, once every slot is bound. It is as long as all members'
// memory, stride bytes for each, and valid until the object is closed.
func (o *Object) Map() (device.Memory, uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, 0, fmt.Errorf("host object map: %w", framework.ErrClosed)
	}
	for slot, n := range o.bound {
		if n == 0 {
			return nil, 0, fmt.Errorf("host object map: %w: slot %d of %d is not bound", framework.ErrInvalid, slot, o.ranks)
		}
	}
	return Wrap(uintptr(o.space.Addr()), o.space.Len()), o.stride, nil
}

// Close unmaps the window and drops the object.
func (o *Object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	var err error
	if o.space != nil {
		err = o.space.Close()
	}
	if o.id != nil {
		return first(err, o.id.Close()) // owns the share's descriptor
	}
	return first(err, o.share.Close())
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

var _ device.Object = (*Object)(nil)
