package mscclpp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
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

// tearsLines reports whether a store of 128 bytes may come in parts on its way to a
// GPU of this host: if one of the transports does not say that all pairs are joined by
// NVLink. A rank may be alone on a GPU that has no other beside it, so no news is bad
// news.
func tearsLines(ctx context.Context, transports []*comm.Transport, facts framework.Facts, log *slog.Logger) bool {
	for _, t := range transports {
		p, ok := t.Transport.(framework.Prober)
		if !ok || !t.Description.Probe || !t.Description.Has(framework.KindMemory) {
			continue
		}
		live, err := p.Probe(ctx, facts)
		if err == nil && joined(live.Facts["nvlink"]) {
			continue
		}
		log.Info("kernels send no packets of 128 bytes: collectives.lines says otherwise", "transport", t.Name, "nvlink", live.Facts["nvlink"], "error", err)
		return true
	}
	return false
}

// joined reads what the transport cudaipc says of links: "18 between every pair,
// through switches", "none", "0 to 18 between pairs", or nothing.
func joined(nvlink string) bool {
	n, _, ok := strings.Cut(nvlink, " ")
	links, err := strconv.Atoi(n)
	return ok && err == nil && links > 0
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
		f, err := os.OpenFile(logName(cfg.File, rank), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: log.file: %w", framework.ErrInvalid, err)
		}
		out, closer = f, f
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
