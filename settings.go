package mscclpp

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

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

// table turns the configured rows into those of package collectives.
func table(cfg config.Collectives) ([]collectives.Row, error) {
	var rows []collectives.Row
	for i, c := range cfg.Table {
		row := collectives.Row{
			MaxBytes: uint64(c.MaxBytes), MinRanks: c.MinRanks, MaxRanks: c.MaxRanks,
			Registered: c.Registered, Algorithm: c.Algorithm, Blocks: c.Blocks, Threads: c.Threads,
		}
		if c.Collective != "" {
			var err error
			if row.Collective, err = collectives.ParseCollective(c.Collective); err != nil {
				return nil, fmt.Errorf("collectives.table, row %d: %w", i+1, err)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// collectiveOptions is what the configuration says of collectives.
func collectiveOptions(cfg *config.Config) (collectives.Options, error) {
	rows, err := table(cfg.Collectives)
	if err != nil {
		return collectives.Options{}, err
	}
	return collectives.Options{
		Scratch:     uint64(cfg.Comm.Scratch),
		MaxBlocks:   cfg.Comm.MaxBlocks,
		Sharing:     cfg.Collectives.Sharing,
		CopyScratch: uint64(cfg.Collectives.CopyScratch),
		NoCopies:    !cfg.Collectives.CopyEngines,
		NoLines:     cfg.Collectives.Lines == "never",
		Signatures:  collectives.Signatures(cfg.Check.Signatures),
		Table:       rows,
	}, nil
}

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

// openLog opens the log that the configuration asks for; the closer may be nil.
func openLog(cfg config.Log, rank string) (*slog.Logger, io.Closer, error) {
	level, ok := logLevels[cfg.Level]
	if !ok { // "none"
		return slog.New(slog.DiscardHandler), nil, nil
	}
	out, closer := io.Writer(os.Stderr), io.Closer(nil)
	if cfg.File != "" {
		// A pipe that nobody reads is an error rather than a wait without end.
		f, err := os.OpenFile(logName(cfg.File, rank), os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
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
