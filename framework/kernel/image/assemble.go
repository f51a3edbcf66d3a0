package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/internal/machinecode"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Assembled says what was assembled for a chip.
type Assembled struct {
	Chip   string
	File   string // the container; "" if none was written
	Images int
	Made   int   // images that were not in the store
	Bytes  int64 // of the container
}

// Assemble makes machine code of PTX and writes a container for each chip. It holds what each kernel takes of a
// processor against the table registers.txt beside the manifest, and refuses what takes more. Machine code of an
// image whose PTX has not changed is taken from the store.
func Assemble(ctx context.Context, a Assembly) ([]Assembled, error) {
	if len(a.Chips) == 0 {
		a.Chips = Chips
	}
	for _, chip := range a.Chips {
		if err := machinecode.CheckChip(chip); err != nil {
			return nil, err
		}
	}
	if a.Store != "" && ownfile.Folder(a.Store) != nil {
		a.Store = "" // files that others could write there would be executed
	}
	tool, err := findAssembler(ctx, a.Assembler)
	if err != nil {
		return nil, err
	}
	pieces, folders, err := a.pieces()
	if err != nil {
		return nil, err
	}
	if err := a.each(ctx, pieces, func(ctx context.Context, p *piece) error { return p.assemble(ctx, tool, a.Store) }); err != nil {
		return nil, err
	}
	var problems []error
	for _, f := range folders {
		problems = append(problems, f.hold(pieces, &a))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	var out []Assembled
	for _, chip := range a.Chips {
		done, err := a.bundle(chip, tool.version, pieces)
		if err != nil {
			return nil, err
		}
		out = append(out, done)
	}
	return out, nil
}

// each does work for all pieces, several at once, and ends with the first failure.
func (a *Assembly) each(ctx context.Context, pieces []*piece, work func(context.Context, *piece) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := a.Jobs
	if jobs <= 0 {
		jobs = runtime.NumCPU()
	}
	next := make(chan *piece)
	var group sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range min(jobs, len(pieces)) {
		group.Go(func() {
			for p := range next {
				if err := work(ctx, p); err != nil {
					cancel(err)
				}
				mu.Lock()
				if done++; a.Progress != nil {
					a.Progress(done, len(pieces), p.id())
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range pieces {
		select {
		case next <- p:
		case <-ctx.Done():
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}

// bundle writes the container of a chip.
func (a *Assembly) bundle(chip, version string, pieces []*piece) (Assembled, error) {
	done := Assembled{Chip: chip}
	b := machinecode.Bundle{Chip: chip, Assembler: version}
	for _, p := range pieces {
		if p.chip != chip {
			continue
		}
		done.Images++
		if p.made {
			done.Made++
		}
		if err := b.Add(p.folder.manifest.Name+"/"+p.image.ID, p.image.SHA256, p.code, p.use); err != nil {
			return done, err
		}
	}
	if done.Images == 0 {
		return done, fmt.Errorf("%w: no image in %v is for %s or older chips", framework.ErrInvalid, a.Images, chip)
	}
	if a.Out == "" {
		return done, nil
	}
	var data bytes.Buffer
	if err := b.Write(&data); err != nil {
		return done, err
	}
	done.File, done.Bytes = a.Out+"-"+chip+machinecode.Extension, int64(data.Len())
	if old, err := os.ReadFile(done.File); err == nil && bytes.Equal(old, data.Bytes()) {
		return done, nil
	}
	if err := os.MkdirAll(filepath.Dir(done.File), 0o755); err != nil {
		return done, err
	}
	return done, atomicfile.File(done.File, func(w io.Writer) error { _, err := w.Write(data.Bytes()); return err })
}
