package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// count asks all hosts for their devices.
func (r *run) count(ctx context.Context) error {
	body, err := json.Marshal(r.Count)
	if err != nil {
		return err
	}
	for _, l := range r.links {
		l.send(kindCount, body)
	}
	deadline := time.NewTimer(r.Timeout)
	defer deadline.Stop()
	for left := len(r.links); left > 0; {
		select {
		case e := <-r.events:
			l := r.links[e.host]
			err := e.err
			switch {
			case err != nil:
			case e.frame.kind == kindCounted:
				if l.counted, err = decode[counted](e.frame); err == nil && l.counted.Failed != "" {
					err = fmt.Errorf("%w: one rank for each %s: %s", framework.ErrInvalid, r.Of, l.counted.Failed)
				}
			case e.frame.kind == kindEnd:
				var x end
				if x, err = decode[end](e.frame); err == nil {
					err = errors.New(x.Error)
				}
			default:
				err = fmt.Errorf("%w: it was asked for its devices, and its message is %q: expected %q", framework.ErrPeer, e.frame.kind, kindCounted)
			}
			if err != nil {
				return fmt.Errorf("host %s: %w", l.host.Name, err)
			}
			l.tallied = true
			left--
		case <-deadline.C:
			var silent []string
			for _, l := range r.links {
				if !l.tallied {
					silent = append(silent, l.host.Name)
				}
			}
			return fmt.Errorf("%w: %d of %d hosts have not counted their devices within %v: %s: give a number of ranks, or raise bootstrap.timeout", framework.ErrUnavailable, len(silent), len(r.links), r.Timeout, strings.Join(silent, ", "))
		case s := <-r.Signals:
			if r.ends(s) {
				return fmt.Errorf("%w: ended by %v before all hosts had counted their devices", framework.ErrClosed, s)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// counts is the number of ranks of each host.
func (r *run) counts() ([]int, error) {
	if r.Of == "" {
		return Spread(r.Hosts, r.Total, r.Each)
	}
	out, sum := make([]int, len(r.links)), 0
	for i, l := range r.links {
		switch out[i] = l.counted.Devices; {
		case r.Of == "cpu", r.Of == "auto" && out[i] == 0:
			out[i] = l.hello.CPUs
		case out[i] == 0:
			return nil, fmt.Errorf("host %s: one rank for each gpu: %w: %s", l.host.Name, framework.ErrUnavailable, l.counted.None)
		}
		sum += out[i]
	}
	if r.Total != 0 && r.Total != sum {
		return nil, invalid("-n %d, and one rank for each %s, which are %d: expected one of them", r.Total, r.Of, sum)
	}
	return out, nil
}
