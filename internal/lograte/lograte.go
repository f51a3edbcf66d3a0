// Package lograte bounds what strangers can make a program log.
package lograte

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Interval is the least time between two lines of one Limiter.
const Interval = time.Second

// Limiter writes at most one line in each Interval. Its zero value is ready.
type Limiter struct {
	mu      sync.Mutex
	last    time.Time
	skipped int

	now func() time.Time // of tests
}

// Log writes a line, with how many were left out before it, or leaves it out.
func (l *Limiter) Log(log *slog.Logger, level slog.Level, msg string, args ...any) {
	if !log.Enabled(context.Background(), level) {
		return
	}
	skipped, ok := l.take()
	if !ok {
		return
	}
	if skipped > 0 {
		args = append(args, "left_out", skipped)
	}
	log.Log(context.Background(), level, msg, args...)
}

func (l *Limiter) take() (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now
	if l.now != nil {
		now = l.now
	}
	at := now()
	if !l.last.IsZero() && at.Sub(l.last) < Interval {
		l.skipped++
		return 0, false
	}
	skipped, l.skipped, l.last = l.skipped, 0, at
	return skipped, true
}
