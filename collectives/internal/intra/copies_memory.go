package intra

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

const (
	leastCopyScratch = 32 << 20 // where a device has little left
	leastPiece       = 64 << 10
	slotsOfAPeer     = 2 // in a rank's scratch
)

// open makes the memory for pieces: less than is configured where a device has no more left, and on
// all ranks what the one with the least of it has.
func (k *copier) open(ctx context.Context) error {
	slots := slotsOfAPeer * uint64(k.comm.Size())
	if least := slots * leastPiece; k.scratch < least {
		return fmt.Errorf("%w: copy scratch of %d bytes: expected at least %d", framework.ErrInvalid, k.scratch, least)
	}
	short := k.allocate(slots * leastPiece)
	var has uint64
	if k.memory != nil {
		has = k.memory.Bytes()
	}
	all, err := k.comm.AllGather(ctx, binary.LittleEndian.AppendUint64(nil, has))
	if err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	bytes := k.scratch
	for rank, b := range all {
		if bytes = min(bytes, binary.LittleEndian.Uint64(b)); bytes == 0 {
			err := &framework.Error{Op: "copy scratch", Peer: rank, Err: fmt.Errorf(
				"%w: too little memory is left on its device: choose another algorithm, or switch collectives.copy_engines off", framework.ErrUnavailable)}
			k.poor = errors.Join(err, short, k.release())
			k.comm.Log().Warn("no memory for copies in pieces: other algorithms serve their calls", "reason", k.poor)
			return errNoCopies{k.poor}
		}
	}
	if bytes < k.scratch/2 {
		k.comm.Log().Warn("little memory for copies in pieces, which makes them slower", "bytes", bytes, "configured", k.scratch)
	}
	k.slot = bytes / slots / leastPiece * leastPiece
	if k.peers, err = k.comm.Exchange(ctx, k.memory); err != nil {
		return fmt.Errorf("copy scratch: %w", err)
	}
	return nil
}

// allocate takes what is configured, or half of it, and so on, in whole units. It returns
// why there was no more, if there was too little.
func (k *copier) allocate(unit uint64) (err error) {
	for bytes := k.scratch; k.memory == nil; bytes /= 2 {
		if err != nil && (bytes < leastCopyScratch || !errors.Is(err, framework.ErrUnavailable)) {
			return err
		}
		k.memory, err = k.comm.Alloc(bytes / unit * unit)
	}
	return nil
}
