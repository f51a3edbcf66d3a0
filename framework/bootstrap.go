package framework

import "context"

// Bootstrap connects the ranks of a job before any transport works, and carries parcels
// between them. It is for set-up: expect a fraction of a millisecond per message.
//
// Implemented by framework/bootstrap; an application may bring its own. Called by
// framework/comm.
//
// Messages between two ranks with the same tag arrive in order. Every call ends when
// ctx does, and with ErrPeer when the other rank is gone. Send borrows the parcel's
// descriptors; Recv hands descriptors over. Descriptors that are sent to a rank on
// another host are dropped.
type Bootstrap interface {
	Rank() int
	Size() int
	Send(ctx context.Context, to int, tag Tag, p Parcel) error
	Recv(ctx context.Context, from int, tag Tag) (Parcel, error)
}

// Tag separates conversations between two ranks. Values below 1<<32 are free for
// applications; the others are used by this module.
type Tag uint64
