package traces

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// partsEnd ends the names of folders to which the ranks of a host add their parts, and partsWithin is how long after the first one.
const (
	partsEnd    = "-ranks"
	partsWithin = time.Minute
	partsLimit  = 5 * time.Second // for the parts of the other ranks
)

// WriteFlightPart writes what a rank knows of its job, which has failed and has no launcher on this host that would do so. The ranks of the host
// have one folder below base, whose path it returns; the first one writes the README.
func (t *Trace) WriteFlightPart(base string, rank int) (string, error) {
	fail := func(err error) (string, error) { return "", fmt.Errorf("flight recorder: %w", err) }
	if err := ownfile.Folder(base); err != nil {
		return fail(err)
	}
	held, err := os.Open(base)
	if err != nil {
		return fail(err)
	}
	defer held.Close()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) { // the others hold it for as long as files take to write
		if err = unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		if time.Since(began) > partsLimit {
			return fail(fmt.Errorf("%s is locked by another process: %w", base, err))
		}
	}
	name := fmt.Sprintf("rank-%d.perfetto", rank)
	dir := recent(base, clean(t.Job)+partsEnd, name)
	if dir == "" {
		prune(base, mostFlights-1)
		dir = filepath.Join(base, time.Now().UTC().Format("20060102-150405.000")+"-"+clean(t.Job)+partsEnd)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fail(err)
		}
	}
	err = atomicfile.File(filepath.Join(dir, name), func(w io.Writer) error { return t.WritePerfetto(w) })
	if _, e := os.Stat(filepath.Join(dir, flightReadme)); e != nil {
		err = errors.Join(err, atomicfile.File(filepath.Join(dir, flightReadme), func(w io.Writer) error {
			fmt.Fprintf(w, "%s\n\n", t.witness(rank))
			t.Tell().Print(w)
			_, err := fmt.Fprintf(w, "\nmscclpp-run trace %s tells what all ranks of this host have written; ui.perfetto.dev draws each file.\n", dir)
			return err
		}))
	}
	if err != nil {
		return fail(err)
	}
	return dir, nil
}

// recent is the folder that another rank has just made, and that has no file of this name.
func recent(base, end, file string) string {
	all, err := filepath.Glob(filepath.Join(base, "*-"+end))
	if err != nil {
		return ""
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(b, a) })
	for _, dir := range all {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) > partsWithin {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, file)); os.IsNotExist(err) {
			return dir
		}
	}
	return ""
}

// witness names the party that failed and the call, as one rank saw it.
func (t *Trace) witness(rank int) string {
	r := t.RankOf(rank)
	text := fmt.Sprintf("rank %d failed", rank)
	if r != nil && r.Culprit >= 0 && r.Culprit != rank {
		text = fmt.Sprintf("rank %d failed, as rank %d saw", r.Culprit, rank)
	}
	if c := r.last(); c != nil {
		return fmt.Sprintf("%s at call %d of %s: %s of %s%s", text, c.Number, c.Comm, c.Kind, Size(c.Bytes), by(c.Algorithm))
	}
	return text + " outside of calls"
}

// filesOf are the traces in a folder of the flight recorder.
func filesOf(dir string) []string {
	parts, _ := filepath.Glob(filepath.Join(dir, "rank-*.perfetto")) // the pattern is right
	if len(parts) == 0 {
		parts = []string{strings.TrimSuffix(dir, "/") + "/" + flightTrace}
	}
	return parts
}
