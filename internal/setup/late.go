package setup

import (
	"context"
	"errors"
	"reflect"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Released takes out of the errors of an end those that say no more than that a transport did not answer in time: the
// work was done before, and the end of the job kills a plugin that does not go. The log has them.
func (j *Job) Released(err error) error {
	if err == nil {
		return nil
	}
	if late(err) {
		j.log.Warn("what a plugin has is left to its end, which is not waited for", "reason", err)
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || reflect.TypeOf(err) != reflect.TypeOf(errors.Join(err)) {
		return err
	}
	var left []error
	for _, one := range joined.Unwrap() {
		left = append(left, j.Released(one))
	}
	return errors.Join(left...)
}

// late reports whether err is that of one transport which did not answer in time.
func late(err error) bool {
	for err != nil {
		if e, ok := err.(*framework.Error); ok && e.Transport != "" { //nolint:errorlint // the errors around it were looked at before
			return errors.Is(e.Err, context.DeadlineExceeded)
		}
		err = errors.Unwrap(err) // nil for several errors in one
	}
	return false
}
