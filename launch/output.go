package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/internal/outputpump"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// maxLine is the longest piece of a line that is kept until its end comes.
const maxLine = 64 << 10

// drainBound is how long output may trickle in after everything that could write
// it has been killed.
const drainBound = time.Second

// outputs are the standard output and error of all local ranks.
type outputs struct {
	of      []rankOutput
	child   []*os.File // ends that belong to the ranks: closed here once they run
	pipes   []*os.File // ends that are read here
	copying sync.WaitGroup
	took    chan struct{} // gets a value when something has been written since the last one

	mu   sync.Mutex
	lost error // the first write that failed, other than to a closed pipe
}

type rankOutput struct{ stdout, stderr *os.File }

// newOutputs opens what the ranks write to: the launcher's own files where
// possible, so that nothing is copied.
func newOutputs(j *Job) (*outputs, error) {
	o := &outputs{of: make([]rankOutput, j.Place.Local), took: make(chan struct{}, 1)}
	if j.Output.Dir != "" {
		if err := os.MkdirAll(j.Output.Dir, 0o777); err != nil {
			return nil, fmt.Errorf("output folder: %w", err)
		}
	}
	stdout, stderr := newSink(j.Stdout), newSink(j.Stderr)
	if j.Stdout == j.Stderr {
		stderr = stdout
	}
	stdout.wrote, stderr.wrote = o.wrote, o.wrote
	for i := range o.of {
		var err error
		if o.of[i].stdout, err = o.open(j, i, ".out", stdout); err == nil {
			o.of[i].stderr, err = o.open(j, i, ".err", stderr)
		}
		if err != nil {
			o.closeChildEnds()
			o.drain(nil)
			return nil, err
		}
	}
	return o, nil
}

// open returns the file that rank i gets for one stream.
func (o *outputs) open(j *Job, i int, suffix string, to *sink) (*os.File, error) {
	rank := strconv.Itoa(j.Place.First + i)
	var file *os.File
	if j.Output.Dir != "" {
		var err error
		if file, err = ownfile.Open(filepath.Join(j.Output.Dir, "rank-"+rank+suffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
			return nil, fmt.Errorf("output of rank %s: %w", rank, err)
		}
		o.child = append(o.child, file)
		if !j.Output.Tee && !j.Output.Timestamp {
			return file, nil
		}
	} else if own, ok := to.w.(*os.File); ok && !j.Output.Tag && !j.Output.Timestamp {
		return own, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("output of rank %s: %w", rank, err)
	}
	o.child = append(o.child, write)
	o.pipes = append(o.pipes, read)
	l := &liner{stamp: j.Output.Timestamp, failed: o.lose}
	if j.Output.Tag {
		l.tag = fmt.Sprintf("[%*s] ", len(strconv.Itoa(j.Place.World-1)), rank)
	}
	if file == nil || j.Output.Tee {
		l.sinks = append(l.sinks, to)
	}
	if file != nil {
		// The child's copy is closed with the others; this one lives as long as the pipe.
		f, err := ownfile.Open(file.Name(), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, fmt.Errorf("output of rank %s: %w", rank, err)
		}
		l.file = f
	}
	o.copying.Go(func() { l.copy(&rest{File: read}) })
	return write, nil
}

func (o *outputs) closeChildEnds() {
	for _, f := range o.child {
		f.Close()
	}
	o.child = nil
}

// drain waits for the rest of the output, and at most drainBound for writers that
// were not ours to kill. Where it goes it may be taken late, or not at all: that ends with
// over.
func (o *outputs) drain(over <-chan struct{}) {
	for _, p := range o.pipes {
		if p.SetReadDeadline(time.Now().Add(drainBound)) != nil {
			p.Close() // the reader ends now rather than never
		}
	}
	copied := make(chan struct{})
	go func() {
		o.copying.Wait()
		close(copied)
	}()
	select {
	case <-copied:
	case <-over:
		select {
		case <-copied:
		default:
			o.lose(outputpump.ErrNotTaken)
		}
	}
	for _, p := range o.pipes {
		p.Close()
	}
}

// rest reads a pipe to the end: behind the deadline, what is in the pipe by then. Somebody
// may read that only later, a pager for one.
type rest struct {
	*os.File
	late bool // the deadline has passed
	left int  // and so much was there
}

// Read implements io.Reader.
func (r *rest) Read(b []byte) (int, error) {
	if !r.late {
		n, err := r.File.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		r.late, r.left = true, r.waiting()
		if err := r.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
	}
	if r.left == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := r.File.Read(b[:min(len(b), r.left)]) // no other thread reads, so it does not wait
	r.left -= n
	return n, err
}

// waiting is how much the pipe has.
func (r *rest) waiting() (n int) {
	c, err := r.SyscallConn()
	if err == nil {
		err = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err != nil {
		return 0
	}
	return n
}

// wrote takes note of a write to where the output goes.
func (o *outputs) wrote(err error) {
	o.lose(err)
	select {
	case o.took <- struct{}{}:
	default:
	}
}

// lose keeps why output is not where it was to go. A reader that closes a pipe has read enough.
func (o *outputs) lose(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lost == nil && outputpump.Lost(err) {
		o.lost = err
	}
}

// missing is what lose kept, once all writers have ended.
func (o *outputs) missing() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

// sink is where lines of many ranks meet. It keeps them whole.
type sink struct {
	mu    sync.Mutex
	w     io.Writer
	wrote func(error) // may be nil
}

func newSink(w io.Writer) *sink {
	if w == nil {
		w = io.Discard
	}
	return &sink{w: w}
}

func (s *sink) write(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outputpump.InSteps(s.w, b, func(_ int, err error) {
		if s.wrote != nil {
			s.wrote(err) // the rank does not end because of an error
		}
	})
}

// liner cuts a stream into lines and puts the tag in front of each. Without a tag and a
// time the bytes pass unchanged, and lines that are not too long still pass whole.
type liner struct {
	tag   string
	stamp bool
	sinks []*sink
	file  *os.File // without tag: the name of the file says the rank
	held  []byte   // the line that has no end yet

	failed func(error) // may be nil; a write to file has
}

func (l *liner) copy(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		l.add(buf[:n])
		if err != nil {
			break // the end, or the bound of drain
		}
	}
	l.cut()
	if l.file != nil {
		l.file.Close()
	}
}

// add takes a piece of the stream and passes on what is complete, in one write.
func (l *liner) add(piece []byte) {
	if !l.stamp {
		l.record(piece)
	}
	end := bytes.LastIndexByte(piece, '\n') + 1
	if end > 0 {
		l.emit(append(l.held, piece[:end]...))
		l.held = nil
	}
	l.held = append(l.held, piece[end:]...)
	if len(l.held) > maxLine {
		l.cut()
	}
}

// cut passes on a line that has no end. Text in front of the next piece, of this rank or of another
// one, needs one.
func (l *liner) cut() {
	if len(l.held) == 0 {
		return
	}
	if l.stamp || l.tag != "" {
		l.held = append(l.held, '\n')
	}
	l.emit(l.held)
	l.held = nil
}

func (l *liner) emit(whole []byte) {
	stamp := ""
	if l.stamp {
		stamp = time.Now().Format("2006-01-02T15:04:05.000 ")
	}
	if len(l.sinks) > 0 {
		tagged := prefixed(whole, stamp+l.tag)
		for _, s := range l.sinks {
			s.write(tagged)
		}
	}
	if l.stamp {
		l.record(prefixed(whole, stamp))
	}
}

// record writes to the file of the rank.
func (l *liner) record(b []byte) {
	if l.file == nil || len(b) == 0 {
		return
	}
	_, err := l.file.Write(b)
	if err != nil && l.failed != nil {
		l.failed(err)
	}
	if errors.Is(err, os.ErrClosed) {
		l.file = nil
	}
}

// prefixed puts a prefix in front of every line.
func prefixed(whole []byte, prefix string) []byte {
	if prefix == "" {
		return whole
	}
	out := make([]byte, 0, len(whole)+len(prefix)*(1+bytes.Count(whole, []byte{'\n'})))
	for line := range bytes.Lines(whole) {
		out = append(out, prefix...)
		out = append(out, line...)
	}
	return out
}
