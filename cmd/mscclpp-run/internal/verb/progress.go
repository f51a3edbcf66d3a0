package verb

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
)

// Progress shows what a long verb is doing, in one line that is written over. It
// stays silent where nobody looks: in a pipe, a file, or for work that is quick.
type Progress struct {
	w     io.Writer
	quiet bool
	start time.Time
	last  time.Time
	shown bool
}

// Patience before the first line, and between lines.
const (
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

// NewProgress returns one that writes to w, if that is a terminal.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, quiet: !ok || !isatty.IsTerminal(f.Fd()), start: time.Now()}
}

// Show replaces the line.
func (p *Progress) Show(format string, args ...any) {
	now := time.Now()
	if p.quiet || now.Sub(p.start) < progressAfter || p.shown && now.Sub(p.last) < progressEvery {
		return
	}
	p.shown, p.last = true, now
	fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
}

// Clear takes the line away, before other output and at the end.
func (p *Progress) Clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
