package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"unsafe"
)

// callback passes messages to a function of the program. Copies with attributes share it.
type callback struct {
	slog.Handler
	to *callbackTo
}

type callbackTo struct {
	mu      sync.Mutex
	text    bytes.Buffer
	log     C.mscclpp_log_fn // nil after close
	context unsafe.Pointer
}

// newCallback returns a handler for messages from a level on, and what ends it.
func newCallback(log C.mscclpp_log_fn, context unsafe.Pointer, least slog.Level) *callback {
	to := &callbackTo{log: log, context: context}
	return &callback{to: to, Handler: slog.NewTextHandler(&to.text, &slog.HandlerOptions{Level: least, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{} // the program has a clock, and gets the level
		}
		return a
	}})}
}

// Handle implements slog.Handler.
func (c *callback) Handle(ctx context.Context, r slog.Record) error {
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	if c.to.log == nil {
		return nil
	}
	c.to.text.Reset()
	if err := c.Handler.Handle(ctx, r); err != nil {
		return err
	}
	text := C.CString(string(bytes.TrimRight(c.to.text.Bytes(), "\n")))
	defer C.free(unsafe.Pointer(text))
	C.call_log(c.to.log, c.to.context, levelOf(r.Level), text)
	return nil
}

// WithAttrs implements slog.Handler.
func (c *callback) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &callback{to: c.to, Handler: c.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (c *callback) WithGroup(name string) slog.Handler {
	return &callback{to: c.to, Handler: c.Handler.WithGroup(name)}
}

// Close waits until the function is not running, and keeps it from being called again.
func (c *callback) Close() error {
	c.to.mu.Lock()
	defer c.to.mu.Unlock()
	c.to.log = nil
	return nil
}

func levelOf(l slog.Level) C.int {
	switch {
	case l < slog.LevelInfo:
		return C.MSCCLPP_LOG_DEBUG
	case l < slog.LevelWarn:
		return C.MSCCLPP_LOG_INFO
	case l < slog.LevelError:
		return C.MSCCLPP_LOG_WARN
	}
	return C.MSCCLPP_LOG_ERROR
}
