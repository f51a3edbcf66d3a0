package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/mscclpp-go/mscclpp/internal/supervise"
)

// process is one started rank.
type process struct {
	*supervise.Child
	local   int
	stopped bool // by a signal, when it was looked at last
	ended   bool // it is a zombie: dead, but its group's number is still taken
}

// start starts all ranks from one thread that lives until the job's end, because
// Pdeathsig is sent when the forking thread ends, not when the process does. Binding
// that thread before each fork binds the rank before its first instruction.
func (w *watch) start(out *outputs) error {
	w.threadDone = make(chan struct{})
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		failed <- w.startAll(out)
		<-w.threadDone
	}()
	return <-failed
}

func (w *watch) startAll(out *outputs) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	defer out.closeChildEnds()
	stdin := newStdin(w.job.Stdin)
	defer stdin.closeChildEnd()
	for i := range w.job.Place.Local {
		files := []*os.File{null, out.of[i].stdout, out.of[i].stderr}
		if w.job.Place.First+i == 0 {
			if f := stdin.file(); f != nil {
				files[0] = f
			}
			if w.job.Listener != nil {
				files = append(files, w.job.Listener)
			}
		}
		if w.job.Masks != nil {
			if err := w.job.Masks[i].apply(); err != nil {
				return fmt.Errorf("bind rank %d to processors %v: %w", w.job.Place.First+i, w.job.Masks[i], err)
			}
		}
		child, err := forkExec(w.job.Path, w.job.Args, files, &syscall.ProcAttr{
			Dir: w.job.Dir,
			Env: w.job.RankEnv(i),
			Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
		})
		if err != nil {
			return fmt.Errorf("start rank %d: %w", w.job.Place.First+i, hinted(err, w.job.Path, w.job.Dir))
		}
		w.procs = append(w.procs, &process{Child: child, local: i})
		w.guard.add(child.PID)
	}
	stdin.copy()
	return nil
}

// hinted adds to an error of exec what it leaves to be guessed.
func hinted(err error, path, dir string) error {
	if dir != "" && !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	switch _, missing := os.Stat(path); {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: expected a program for this machine, or a script that begins with #! and its interpreter", err)
	case errors.Is(err, syscall.ENOENT) && missing == nil:
		return fmt.Errorf("%w: the file is there, but not the interpreter or loader that it names", err)
	}
	return err
}

// forkExec starts a process. It is used instead of os.StartProcess because the launcher
// reaps in its own time, and signals groups. A child that is killed before it has executed
// the program is no error: the caller learns of it as of one that is killed later.
func forkExec(path string, args []string, files []*os.File, attr *syscall.ProcAttr) (*supervise.Child, error) {
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	fd := -1
	attr.Sys.PidFD = &fd
	pid, err := syscall.ForkExec(path, args, attr)
	runtime.KeepAlive(files)
	if err != nil {
		return nil, &os.PathError{Op: "exec", Path: path, Err: err}
	}
	return supervise.NewChild(pid, fd), nil
}
