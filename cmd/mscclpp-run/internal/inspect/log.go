package inspect

import "log/slog"

// quietLog keeps the chatter of plugins out of a report: what went wrong with one
// is in its error.
func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
