package exec

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/framework"
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{framework.ErrInvalid}, args...)...)
}

// sizeError says that a buffer does not divide into the chunks of a plan.
type sizeError struct {
	plan, what   string
	bytes, whole uint64
}

func (e *sizeError) Error() string {
	below := e.bytes / e.whole * e.whole
	nearest := fmt.Sprintf("%d or %d", below, below+e.whole)
	if below == 0 {
		nearest = fmt.Sprint(e.whole)
	}
	return fmt.Sprintf("%v: plan %s: an %s of %d bytes: expected a multiple of %d, as %s", framework.ErrInvalid, e.plan, e.what, e.bytes, e.whole, nearest)
}

func (e *sizeError) Unwrap() error { return framework.ErrInvalid }
