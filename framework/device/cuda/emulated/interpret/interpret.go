// Package interpret runs PTX, as it is shipped, on seeded schedules: all ranks in one process, without a device. A session is
// a process of the interpreter of package emulated. Memory lies where the caller says, so arguments are made as for a device.
package interpret

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Session is one process. It is for one goroutine.
type Session struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts the program.
func Start(ctx context.Context, program string) (*Session, error) {
	cmd := exec.CommandContext(ctx, program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("interpreter: %w", err)
	}
	return &Session{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// Close ends it.
func (s *Session) Close() error {
	s.in.Close()
	return s.cmd.Wait()
}

// Image decodes a text, and says how many instructions and entries it has.
func (s *Session) Image(name string, text []byte) (instructions, entries int, err error) {
	words, err := s.call(text, "image %s %d", name, len(text))
	if err == nil {
		_, err = fmt.Sscan(words, &instructions, &entries)
	}
	return instructions, entries, err
}

// Memory maps memory of a rank, filled with zeros.
func (s *Session) Memory(rank int, name string, at, bytes uint64) error {
	return s.do(nil, "memory %d %s %d %d", rank, name, at, bytes)
}

// Window makes a multicast window over copies that lie at these addresses.
func (s *Session) Window(name string, at, bytes uint64, copies []uint64) error {
	return s.do(nil, "window %s %d %d %s", name, at, bytes, strings.Trim(fmt.Sprint(copies), "[]"))
}

// Write stores bytes.
func (s *Session) Write(at uint64, p []byte) error { return s.do(p, "write %d %d", at, len(p)) }

// Read loads bytes.
func (s *Session) Read(at uint64, bytes int) ([]byte, error) {
	words, err := s.call(nil, "read %d %d", at, bytes)
	if err != nil {
		return nil, err
	}
	return s.payload(words)
}

// Save keeps the memory, for Restore and for the start of each schedule.
func (s *Session) Save() error { return s.do(nil, "save") }

// Restore brings back what Save has kept.
func (s *Session) Restore() error { return s.do(nil, "restore") }

// Expect has each schedule end with the bytes that are there now.
func (s *Session) Expect(at uint64, bytes int) error { return s.do(nil, "expect %d %d", at, bytes) }

// Launch is a kernel with its arguments.
type Launch struct {
	Image, Entry        string
	Rank, Stream        int
	Grid, Block, Shared uint32
	Overlap             bool
	Cluster             uint32 // blocks; 0 is 1
	Arguments           []byte
}

// Launch enqueues one. Every Run executes all.
func (s *Session) Launch(l *Launch) error {
	overlap := 0
	if l.Overlap {
		overlap = 1
	}
	return s.do(l.Arguments, "launch %s %s %d %d %d %d %d %d %d %d", l.Image, l.Entry, l.Rank, l.Stream, l.Grid, l.Block, l.Shared, overlap, l.Cluster, len(l.Arguments))
}

// Stats is what runs took. Time is that of the processor.
type Stats struct {
	Instructions, Warps, Multimem uint64 // of threads, of warps, and those through a window
	Time                          time.Duration
}

// Add adds another's.
func (s *Stats) Add(o Stats) {
	s.Instructions += o.Instructions
	s.Warps += o.Warps
	s.Multimem += o.Multimem
	s.Time += o.Time
}

// Run executes the launches on so many schedules from a first one, each from the saved memory, with the race detector or
// without, at most so many instructions of threads each. The error names the schedule that failed.
func (s *Session) Run(first, count uint64, races bool, most uint64) (Stats, error) {
	detect := 0
	if races {
		detect = 1
	}
	words, err := s.call(nil, "run %d %d %d %d", first, count, detect, most)
	var x Stats
	if err != nil {
		return x, err
	}
	var micros int64
	_, err = fmt.Sscan(words, &x.Instructions, &x.Warps, &x.Multimem, &micros)
	x.Time = time.Duration(micros) * time.Microsecond
	return x, err
}

// CPU executes the launches by kernels that were compiled for the CPU, from the saved memory.
func (s *Session) CPU(library string) error { return s.do(nil, "cpu %s", library) }

// Mutant is a planted weakening.
type Mutant struct{ How, Where string }

// Mutants lists those of what was executed of an image.
func (s *Session) Mutants(image string) ([]Mutant, error) {
	words, err := s.call(nil, "mutants %s", image)
	if err != nil {
		return nil, err
	}
	text, err := s.payload(words)
	var out []Mutant
	for line := range strings.Lines(string(text)) {
		how, where, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, Mutant{how, where})
	}
	return out, err
}

// Mutate plants some of the last list, instead of those before. Of several of one instruction the first is planted.
func (s *Session) Mutate(n ...int) error {
	return s.do(nil, "mutate %s -1", strings.Trim(fmt.Sprint(n), "[]"))
}

// Reset forgets memory and launches, but not images.
func (s *Session) Reset() error { return s.do(nil, "reset") }

func (s *Session) do(payload []byte, format string, args ...any) error {
	_, err := s.call(payload, format, args...)
	return err
}

// call sends a command and returns what follows "ok".
func (s *Session) call(payload []byte, format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		return "", fmt.Errorf("interpreter: %w", err)
	}
	if _, err := s.in.Write(payload); err != nil {
		return "", fmt.Errorf("interpreter: %w", err)
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("interpreter: it has ended: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if words, failed := strings.CutPrefix(line, "failed "); failed {
		text, err := s.payload(words)
		if err != nil {
			return "", err
		}
		return "", errors.New(string(text))
	}
	return strings.TrimPrefix(strings.TrimPrefix(line, "ok"), " "), nil
}

func (s *Session) payload(words string) ([]byte, error) {
	var n int
	if _, err := fmt.Sscan(words, &n); err != nil {
		return nil, fmt.Errorf("interpreter: %q, expected a number of bytes", words)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(s.out, p); err != nil {
		return nil, fmt.Errorf("interpreter: it has ended: %w", err)
	}
	return p, nil
}
