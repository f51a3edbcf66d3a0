package comm

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/life"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/negotiate"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/observe"
)

// Options configures a communicator. The zero value of a field is its default; Device
// and Transports have none.
type Options struct {
	Device     device.Device
	Transports []*Transport // in order of preference, each name once; the same names on all ranks
	Name       string       // of the communicator, the same on all its ranks; default "world"
	Facts      framework.Facts
	Log        *slog.Logger // default: discards

	// Observer gets the calls of the rank; nil: they go nowhere.
	Observer *observe.Rank

	// Deadline ends every wait of a kernel after so many nanoseconds. 0, the
	// default, lets stragglers take the time they need; the death of a rank ends
	// waits in any case.
	Deadline uint64

	// Grace is how long a rank lives after it was asked to end. After a failure, what is
	// closed shares a fifth of it, also where a transport does not answer; each Close that
	// comes later has 100 ms. That leaves the rank time to report the failure. Default: 5
	// seconds.
	Grace time.Duration

	passed *negotiate.PassedOver // of the communicator that this one is made of; nil: it is made of none
	ending *life.Ending          // likewise

	members members
}

func (o *Options) check() error {
	if o.Device == nil {
		return fmt.Errorf("%w: no device", framework.ErrInvalid)
	}
	named := make(map[string]bool)
	for i, t := range o.Transports {
		switch {
		case t == nil || t.Transport == nil:
			return fmt.Errorf("%w: transport %d of %d is nil", framework.ErrInvalid, i, len(o.Transports))
		case t.Name == "":
			return fmt.Errorf("%w: transport %d of %d has no name", framework.ErrInvalid, i, len(o.Transports))
		case named[t.Name]:
			return fmt.Errorf("%w: transport %q is there twice", framework.ErrInvalid, t.Name)
		}
		named[t.Name] = true
	}
	return nil
}
