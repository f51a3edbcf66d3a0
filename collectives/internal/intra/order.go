package intra

import (
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// order puts calls on a GPU behind each other that are on different streams: all use the
// same memory, and count what they use of it. As long as a program has one stream it costs
// nothing; marks between its kernels would keep them from overlapping.
type order struct {
	mark    device.Mark   // behind the last call, from when there are several streams
	last    device.Stream // of the last call
	any     bool
	several bool
}

// follow has a call on a stream begin when the one before it has ended. It reports whether
// the next one has to learn of this one, by mark. When a graph is launched, and where, is
// the program's affair.
func (o *order) follow(d device.Device, s device.Stream) (marks bool, err error) {
	if !o.several && (!o.any || s == o.last) {
		o.any, o.last = true, s
		return false, nil
	}
	engine, ok := d.(device.Engine)
	if !ok {
		return false, nil
	}
	marker, ok := d.(device.Marker)
	if !ok {
		return false, nil
	}
	if state, err := engine.Query(s); err != nil || state == device.StreamCapturing {
		return false, err
	}
	if o.mark == nil {
		if o.mark, err = marker.NewMark(); err != nil {
			return false, err
		}
	}
	if !o.several {
		if k, ok := d.(interface{ StreamClosed(device.Stream) bool }); !ok || !k.StreamClosed(o.last) {
			state, err := engine.Query(o.last)
			if err == nil && state != device.StreamCapturing { // a mark would be one of the capture
				err = o.mark.Record(o.last)
			}
			if err != nil {
				return false, err
			}
		}
		o.several = true
	}
	return true, o.mark.Wait(s)
}

func (o *order) close() error {
	if o.mark == nil {
		return nil
	}
	return o.mark.Close()
}
