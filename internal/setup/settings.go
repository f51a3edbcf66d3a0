package setup

import (
	"fmt"

	"github.com/mscclpp-go/mscclpp/collectives"
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

// collectiveOptions returns the configuration's settings of collectives.
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
		AnyOverlap:  !cfg.Check.Overlap,
		Preload:     cfg.Collectives.Preload,
		Table:       rows,
	}, nil
}
