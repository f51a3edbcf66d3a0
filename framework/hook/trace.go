package hook

import (
	"context"
	"log/slog"
	"time"
)

// Observe calls f about every call when it has ended. f may be called
// concurrently and must not block.
func Observe(f func(Call)) Layer {
	return func(ctx context.Context, c *Call, next func(context.Context) error) error {
		start := time.Now()
		err := next(ctx)
		seen := *c
		seen.Duration, seen.Err = time.Since(start), err
		f(seen)
		return err
	}
}

// Trace logs every call at level debug, and those that fail at level info.
func Trace(log *slog.Logger) Layer {
	return Observe(func(c Call) {
		attrs := []slog.Attr{slog.String("op", c.Op), slog.Duration("took", c.Duration)}
		if c.ID != 0 {
			attrs = append(attrs, slog.Uint64("id", uint64(c.ID)))
		}
		level := slog.LevelDebug
		if c.Err != nil {
			level = slog.LevelInfo
			attrs = append(attrs, slog.Any("error", c.Err))
		}
		log.LogAttrs(context.Background(), level, "transport", attrs...)
	})
}
