package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/launch"
)

// Agent is the remote host's side of the connection.
type Agent struct {
	In  io.Reader
	Out io.Writer

	Version    string
	Self       string   // path of mscclpp-run
	Env        []string // environment that ssh gave, with what every rank here needs
	Supervisor []string // see launch.Job

	Count func(context.Context, Count) (int, error) // counts devices of this host, as launch.CountDevices does
}

// Serve runs one job and returns the exit code. It ends with the launcher: when In
// ends, so do the ranks.
func (a *Agent) Serve(ctx context.Context) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := io.WriteString(a.Out, greeting+"\n"); err != nil {
		return 1
	}
	out := &frames{w: a.Out}
	if out.value(kindHello, Hello{Version: a.Version, CPUs: runtime.NumCPU()}) != nil {
		return 1
	}
	first, err := readFrame(a.In)
	if err == nil && first.kind == kindCount {
		first, err = a.count(ctx, first, out)
	}
	if err != nil {
		return 1 // the launcher gave up: another host did not answer, and it said so
	}
	result, err := a.run(ctx, cancel, first, out)
	e := end{Result: result}
	if err != nil {
		e.Error = err.Error()
	}
	_ = out.value(kindEnd, e) // a launcher that is gone does not need it
	return result.Code
}

// count answers how many devices there are, and returns the message behind the question. It is read meanwhile: the end of the
// launcher ends the count.
func (a *Agent) count(ctx context.Context, question frame, out *frames) (frame, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var next frame
	var failed error
	came := make(chan struct{})
	go func() {
		defer close(came)
		if next, failed = readFrame(a.In); failed != nil {
			cancel()
		}
	}()
	if err := out.value(kindCounted, a.tally(ctx, question)); err != nil {
		return frame{}, err
	}
	select {
	case <-came:
		return next, failed
	case <-ctx.Done():
		return frame{}, context.Cause(ctx)
	}
}

func (a *Agent) tally(ctx context.Context, question frame) (c counted) {
	asked, err := decode[Count](question)
	if err == nil {
		c.Devices, err = a.Count(ctx, asked)
	}
	switch {
	case errors.Is(err, framework.ErrUnavailable):
		c.None = err.Error()
	case err != nil:
		c.Failed = err.Error()
	}
	return c
}

func (a *Agent) run(ctx context.Context, cancel func(), first frame, out *frames) (launch.Result, error) {
	failed := func(err error) (launch.Result, error) {
		return launch.Result{Code: launch.StartCode(err), Rank: -1}, err
	}
	if first.kind != kindSpec {
		return failed(fmt.Errorf("%w: the launcher began with a message %q: expected %q", framework.ErrPeer, first.kind, kindSpec))
	}
	s, err := decode[Spec](first)
	if err != nil {
		return failed(err)
	}
	job := launch.Job{
		Path: a.Self, Args: s.Args, Dir: s.Dir, Env: append(append([]string{}, a.Env...), s.Env...),
		Place: s.Place, UniqueID: s.UniqueID,
		Stdout: stream{out, kindOut}, Stderr: stream{out, kindErr}, Report: stream{out, kindReport},
		Failed: func(r launch.Result) { _ = out.value(kindFailed, r) },
		Output: s.Output, Linger: s.Linger, Grace: s.Grace,
		Supervisor: a.Supervisor, OwnOrphans: true,
	}
	if s.Dir != "" {
		if err := isFolder(s.Dir); err != nil {
			return failed(err)
		}
	}
	if s.Program != "" {
		if job.Path, job.Args, err = launch.Command(s.Program, s.Args, s.Dir, job.Env); err != nil {
			return failed(err)
		}
	}
	if job.Masks, err = launch.Bind(s.Bind, s.Place.Local); err != nil {
		return failed(err)
	}
	if s.Bindings {
		for i, m := range job.Masks {
			fmt.Fprintf(job.Report, "mscclpp-run: rank %d: processors %v\n", s.Place.First+i, m)
		}
	}
	if s.Listen {
		var m rendezvous
		if job.Listener, m, err = listen(ctx, &s, os.Getenv); err != nil {
			return failed(err)
		}
		defer job.Listener.Close()
		if m.MasterPort, err = freePort(); err != nil {
			return failed(err)
		}
		if s.At != "" {
			m.MasterAddr = s.At
		}
		job.UniqueID, job.Place.MasterAddr, job.Place.MasterPort = m.UniqueID, m.MasterAddr, m.MasterPort
		if err := out.value(kindRendezvous, m); err != nil {
			return failed(err)
		}
	}
	signals := make(chan os.Signal, 16)
	job.Signals = signals
	var stdin chan []byte
	if s.Stdin && s.Place.First == 0 {
		read, write, err := os.Pipe()
		if err != nil {
			return failed(err)
		}
		defer read.Close()
		job.Stdin, stdin = read, make(chan []byte, 1)
		go feed(write, stdin, out)
	}
	go a.obey(cancel, signals, stdin)
	return launch.Run(ctx, job)
}

// obey does what the launcher says until it is gone.
func (a *Agent) obey(gone func(), signals chan<- os.Signal, stdin chan<- []byte) {
	defer gone()
	if stdin != nil {
		defer close(stdin)
	}
	for {
		f, err := readFrame(a.In)
		switch {
		case err != nil:
			return
		case f.kind == kindSignal && len(f.body) == 1:
			select {
			case signals <- syscall.Signal(f.body[0]):
			default: // more than any job needs
			}
		case f.kind == kindIn && stdin != nil:
			// The launcher waits for kindTaken, so there is room; one that does not wait
			// is cut off rather than let it block what follows.
			select {
			case stdin <- f.body:
			default:
				return
			}
		}
	}
}

// feed passes standard input on, and says when a piece has been taken.
func feed(to *os.File, pieces <-chan []byte, out *frames) {
	defer to.Close()
	for piece := range pieces {
		if len(piece) == 0 {
			to.Close()
			continue
		}
		_, _ = to.Write(piece) // a rank that does not read any more is its own business
		if out.write(kindTaken, nil) != nil {
			return
		}
	}
}

func isFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return fmt.Errorf("%w: folder %s: expected it on every host, shared or alike; --chdir names another: %w", framework.ErrInvalid, dir, fs.ErrNotExist)
	}
	return nil
}
