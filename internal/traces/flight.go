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

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// The files in a folder of the flight recorder.
const (
	flightTrace  = "trace.perfetto"
	flightReadme = "README"
)

// mostFlights is how many folders are kept.
const mostFlights = 16

// End is how a rank of a job ended that did not end well.
type End struct {
	Rank  int    // that ended first
	What  string // was killed by signal 9 (SIGKILL)
	Asked bool   // the job was asked to end, by a signal: no rank is to blame
}

// headline names the party that failed and the call, in one line.
func (t *Trace) headline(end End, s *Story) string {
	if end.Asked {
		for _, o := range s.Open {
			if len(o.Without) > 0 {
				return fmt.Sprintf("the job was asked to end when call %d of %s, %s of %s, was begun by %s; %s not begun it", o.Number, o.Comm, o.Kind, Size(o.Bytes), RankList(o.In), Have(o.Without))
			}
		}
		for _, o := range s.Open {
			return fmt.Sprintf("the job was asked to end when %s in call %d of %s: %s of %s", verb(o.In, " was", " were"), o.Number, o.Comm, o.Kind, Size(o.Bytes))
		}
		return "the job was asked to end"
	}
	party, what := end.Rank, end.What
	votes := map[int]int{}
	for _, f := range s.Failed {
		if f.Culprit >= 0 {
			votes[f.Culprit]++
		}
	}
	if r := t.RankOf(party); r == nil || r.Failure != "" { // the rank that ended first has itself suffered from another one
		for rank, n := range votes {
			if rank != party && n > votes[party] {
				party, what = rank, "failed"
			}
		}
	}
	text := fmt.Sprintf("rank %d %s", party, what)
	if party < 0 {
		text = "the job " + what
	}
	r := t.RankOf(party)
	if c := r.last(); c != nil {
		where := "after"
		if c.End == 0 {
			where = "in"
		}
		return fmt.Sprintf("%s %s call %d of %s: %s of %s%s", text, where, c.Number, c.Comm, c.Kind, Size(c.Bytes), by(c.Algorithm))
	}
	return text + " outside of calls"
}

// last is the call that a rank was in, or in which it was last. Calls of the parts of a communicator may be parts of one of
// its calls, and that is the one that the program knows.
func (r *Rank) last() *Call {
	if r == nil || len(r.Calls) == 0 {
		return nil
	}
	later := func(a, b *Call) bool {
		return a.End == 0 && b.End != 0 || (a.End == 0) == (b.End == 0) && a.Begin > b.Begin
	}
	last := &r.Calls[0]
	for i := range r.Calls {
		if later(&r.Calls[i], last) {
			last = &r.Calls[i]
		}
	}
	whole := last
	for i := range r.Calls {
		c := &r.Calls[i]
		if outer := strings.HasPrefix(last.Comm, c.Comm+"/") && len(c.Comm) <= len(whole.Comm); outer && (c.End == 0) == (last.End == 0) && c.Begin > last.Begin-int64(guessed) {
			if len(c.Comm) < len(whole.Comm) || later(c, whole) {
				whole = c
			}
		}
	}
	return whole
}

// guessed is how well the times of calls without records are known.
const guessed = 200 * time.Millisecond

func by(algorithm string) string {
	if algorithm == "" {
		return ""
	}
	return " by " + algorithm
}

// RankOf is the rank with a number; nil: the trace has none.
func (t *Trace) RankOf(n int) *Rank {
	for _, r := range t.Ranks {
		if r.Rank == n {
			return r
		}
	}
	return nil
}

// WriteFlight writes what is known of a job that has failed into a folder of its own below base, and returns its path.
// Older folders make room for it.
func (t *Trace) WriteFlight(base string, end End) (string, error) {
	if err := ownfile.Folder(base); err != nil {
		return "", fmt.Errorf("flight recorder: %w", err)
	}
	prune(base, mostFlights-1)
	dir, err := os.MkdirTemp(base, time.Now().UTC().Format("20060102-150405")+"-"+clean(t.Job)+"-")
	if err != nil {
		return "", fmt.Errorf("flight recorder: %w", err)
	}
	s := t.Tell()
	err = errors.Join(
		atomicfile.File(filepath.Join(dir, flightReadme), func(w io.Writer) error {
			fmt.Fprintf(w, "%s\n\n", t.headline(end, s))
			s.Print(w)
			_, err := fmt.Fprintf(w, "\nmscclpp-run trace %s tells this again; ui.perfetto.dev draws %s.\n", dir, flightTrace)
			return err
		}),
		atomicfile.File(filepath.Join(dir, flightTrace), func(w io.Writer) error { return t.WritePerfetto(w) }),
	)
	if err != nil {
		return dir, fmt.Errorf("flight recorder: %w", err)
	}
	return dir, nil
}

// clean makes a part of a file's name.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, name)
	return name[:min(len(name), 64)]
}

// prune removes the oldest folders, which the recorder has made: their names begin with their time. Other files in them stay,
// and so do the folders.
func prune(base string, most int) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	var made []string
	for _, e := range entries {
		stamp, _, _ := strings.Cut(e.Name(), "-")
		if e.IsDir() && len(stamp) == 8 && strings.Trim(stamp, "0123456789") == "" {
			made = append(made, e.Name())
		}
	}
	slices.SortFunc(made, func(a, b string) int { return cmp.Compare(b, a) })
	for i := most; i < len(made); i++ {
		dir := filepath.Join(base, made[i])
		_ = os.Remove(filepath.Join(dir, flightReadme))
		for _, file := range filesOf(dir) {
			_ = os.Remove(file)
		}
		_ = os.Remove(dir)
	}
}
