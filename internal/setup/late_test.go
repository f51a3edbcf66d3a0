package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Errors of an end are those that are more than a late plugin, wherever that is among them.
func TestErrorsOfALateEnd(t *testing.T) {
	late := fmt.Errorf("close registration: %w", &framework.Error{Op: "close", Transport: "shm", Peer: framework.NoPeer, Err: fmt.Errorf("no answer: %w", context.DeadlineExceeded)})
	other := errors.New("the device is busy")
	refused := &framework.Error{Op: "close", Transport: "shm", Peer: framework.NoPeer, Err: framework.ErrInvalid}
	for name, c := range map[string]struct {
		end  error
		want string
		logs int
	}{
		"none":                 {nil, "", 0},
		"late":                 {late, "", 1},
		"late twice":           {errors.Join(late, nil, errors.Join(late)), "", 2},
		"late, and another":    {errors.Join(errors.Join(late, other), late), other.Error(), 2},
		"refused":              {errors.Join(refused, late), refused.Error(), 1},
		"of no transport":      {fmt.Errorf("stream: %w", context.DeadlineExceeded), "stream: " + context.DeadlineExceeded.Error(), 0},
		"a part of its reason": {fmt.Errorf("%w: %w", other, late), other.Error() + ": " + late.Error(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			j := &Job{log: slog.New(slog.NewTextHandler(&log, nil))}
			got := ""
			if err := j.Released(c.end); err != nil {
				got = err.Error()
			}
			if logs := strings.Count(log.String(), "level=WARN"); got != c.want || logs != c.logs {
				t.Errorf("got %q with %d warnings, expected %q with %d", got, logs, c.want, c.logs)
			}
		})
	}
}
