package setup

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

// OpenLog opens the log that the configuration asks for; the closer may be nil.
func OpenLog(cfg config.Log, rank string) (*slog.Logger, io.Closer, error) {
	level, ok := logLevels[cfg.Level]
	if !ok { // "none"
		return slog.New(slog.DiscardHandler), nil, nil
	}
	out, closer := io.Writer(os.Stderr), io.Closer(nil)
	if cfg.File != "" {
		// A pipe without a reader is an error rather than a wait without end.
		f, err := ownfile.Open(logName(cfg.File, rank), os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
		if errors.Is(err, syscall.ENXIO) {
			err = fmt.Errorf("%w: expected a file, or a pipe that somebody reads", err)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: log.file: %w", framework.ErrInvalid, err)
		}
		log := &logFile{File: f}
		out, closer = log, log
	}
	options := &slog.HandlerOptions{Level: level}
	handler := slog.Handler(slog.NewTextHandler(out, options))
	if cfg.Format == "json" {
		handler = slog.NewJSONHandler(out, options)
	}
	log := slog.New(handler)
	if rank != "" {
		log = log.With("rank", rank)
	}
	return log, closer, nil
}

// logFile is a log whose messages go to standard error when the file does not take them,
// as on a full disk: why a job has failed may be among them.
type logFile struct {
	*os.File
	said atomic.Bool
}

// Write implements io.Writer.
func (f *logFile) Write(message []byte) (int, error) {
	n, err := f.File.Write(message)
	if err == nil {
		return n, nil
	}
	if !f.said.Swap(true) {
		fmt.Fprintf(os.Stderr, "mscclpp: log.file: %v: messages that it does not take come here\n", err)
	}
	return os.Stderr.Write(message)
}

func logName(pattern, rank string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if rank == "" {
		rank = "0"
	}
	return strings.NewReplacer("%h", host, "%p", strconv.Itoa(os.Getpid()), "%r", rank, "%%", "%").Replace(pattern)
}
