package scaling

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/framework/device"
)

// roomBytes is the size of a Room: what is longer goes in pieces, alike on all ranks. Pieces of 32 MiB leave a GPU's
// links idle for a few percent of the time.
const roomBytes = 32 << 20

// Room is memory for scaled inputs that the caller has no place for.
type Room struct {
	device device.Device
	memory device.Memory // on a GPU
	bytes  []byte        // on the host
	mark   device.Mark   // behind the last use of it; nil: it was not used outside of captures
}

// Room lends memory until it is given back. A call that makes calls has its own.
func (s *Scaler) Room() (*Room, error) {
	if s.out == len(s.rooms) {
		r := &Room{device: s.device}
		if !s.gpu {
			r.bytes = make([]byte, roomBytes) // of which the system provides what is touched
		} else {
			m, err := device.AllocData(s.device, roomBytes)
			if err != nil {
				return nil, fmt.Errorf("memory for scaled inputs: %w", err)
			}
			r.memory = m
		}
		s.rooms = append(s.rooms, r)
	}
	s.out++
	return s.rooms[s.out-1], nil
}

// Return takes a Room back.
func (s *Scaler) Return(r *Room) {
	for i := range s.rooms {
		if s.rooms[i] == r { // those in use stay in front
			s.out--
			s.rooms[i], s.rooms[s.out] = s.rooms[s.out], s.rooms[i]
			return
		}
	}
}

// Memory is where the memory is.
func (r *Room) Memory() unsafe.Pointer {
	if r.memory == nil {
		return unsafe.Pointer(unsafe.SliceData(r.bytes))
	}
	addr := r.memory.Addr() // read as a pointer: the memory is not Go's, and does not move
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

// Begin has what is enqueued on a stream from now on wait for the last use of the memory. When a graph is
// launched, and where, is the program's affair.
func (r *Room) Begin(s device.Stream) error {
	if r.mark == nil || capturing(r.device, s) {
		return nil
	}
	return r.mark.Wait(s)
}

// End marks the end of the use on a stream.
func (r *Room) End(s device.Stream) error {
	marker, ok := r.device.(device.Marker)
	if !ok || r.memory == nil || capturing(r.device, s) {
		return nil
	}
	if r.mark == nil {
		var err error
		if r.mark, err = marker.NewMark(); err != nil {
			return err
		}
	}
	return r.mark.Record(s)
}

func capturing(d device.Device, s device.Stream) bool {
	e, ok := d.(device.Engine)
	if !ok {
		return false
	}
	state, err := e.Query(s)
	return err == nil && state == device.StreamCapturing
}

func (r *Room) close() error {
	var all []error
	if r.mark != nil {
		all = append(all, r.mark.Close())
	}
	if r.memory != nil {
		all = append(all, r.memory.Close())
	}
	return errors.Join(all...)
}
