package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
	"github.com/mscclpp-go/mscclpp/launch"
)

// launch starts a program in the role that the engine left for this process.
func (a *app) launch(program string, args []string) error {
	if err := a.unusedHere(); err != nil {
		return err
	}
	if a.opts.emit.kind != "" {
		return a.emit(program, args)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	supervisor := []string{self, supervise.Arg}
	var guard *launch.Guard
	if a.startsRanks() { // it gets ready while this process reads its settings
		guard = launch.Supervise(supervisor)
		defer guard.Dismiss()
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	if a.opts.tee && cfg.Launch.OutputDir == "" && a.engine.Role != launch.RoleRank { // which is warned
		return verb.Usage("--tee is for output that goes to files: expected --output-dir as well")
	}
	if a.opts.hostfile != "" || a.opts.hosts != "" {
		if err := a.restarts(nil); err != nil {
			return err
		}
	}
	if a.opts.hostfile != "" || a.opts.hosts != "" {
		return a.launchHosts(program, args, cfg)
	}
	env, err := a.environ()
	if err != nil {
		return err
	}
	if a.opts.dir != "" {
		if err := enterable(a.opts.dir); err != nil {
			return &verb.Error{Code: launch.StartCode(err), Err: fmt.Errorf("--chdir %s: %w", a.opts.dir, err)}
		}
	}
	path, args, err := launch.Command(program, args, a.opts.dir, env)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !strings.Contains(program, "/") && findVerb(program) == nil {
			err = fmt.Errorf("%w; nor is it a verb%s: %s", err, suggest.Hint(suggest.Name(program, strings.Split(verbNames(), ", "))), verbNames())
		}
		return &verb.Error{Code: launch.StartCode(err), Err: err}
	}
	place, err := a.place()
	if err != nil {
		return err
	}
	if err := a.restarts(place); err != nil {
		return err
	}
	if a.engine.Role == launch.RoleRank && place == nil {
		return a.become(path, args, env)
	}
	masks, err := launch.Bind(cfg.Launch.Bind, place.Local)
	if err != nil {
		return err
	}
	job := launch.Job{
		Path: path, Args: args, Dir: a.opts.dir, Env: env,
		Place:  *place,
		Stdout: os.Stdout, Stderr: os.Stderr, Report: os.Stderr,
		Output: launch.Output{
			Tag: cfg.Launch.TagOutput, Timestamp: cfg.Launch.Timestamp,
			Dir: cfg.Launch.OutputDir, Tee: a.opts.tee,
		},
		Masks:      masks,
		Linger:     time.Duration(cfg.Launch.Linger),
		Grace:      time.Duration(cfg.Launch.Grace),
		Supervisor: supervisor, Guard: guard,
		OwnOrphans: true,
	}
	if !a.opts.noStdin {
		job.Stdin = os.Stdin
	}
	if a.opts.quiet {
		job.Report = nil
	}
	if a.opts.showBinding {
		a.printBindings(&job)
	}
	return a.perform(job, cfg)
}

// reports is where lines of the launcher go.
func (a *app) reports() io.Writer {
	if a.opts.quiet {
		return io.Discard
	}
	return a.stderr
}

// enterable says why a program cannot be started in a folder. The kernel does not tell
// that from a program that is not there.
func enterable(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("expected a folder: %w", syscall.ENOTDIR)
	case unix.Access(dir, unix.X_OK) != nil:
		return fmt.Errorf("expected a folder that may be entered: %w", fs.ErrPermission)
	}
	return nil
}

// startsRanks reports whether this process is certain to start ranks of its own.
func (a *app) startsRanks() bool {
	return a.opts.hostfile == "" && a.opts.hosts == "" && !a.opts.dryRun && a.engine.Role != launch.RoleRank
}

func (a *app) printBindings(j *launch.Job) {
	for i := range j.Place.Local {
		where := "not bound"
		if j.Masks != nil {
			where = "processors " + j.Masks[i].String()
		}
		fmt.Fprintf(a.stderr, "mscclpp-run: rank %d: %s\n", j.Place.First+i, where)
	}
}

// printJob shows what would be started: for each rank, the variables that it gets
// and the command.
func (a *app) printJob(j *launch.Job) error {
	for i := range j.Place.Local {
		var vars []string
		for _, e := range j.OwnEnv(i) {
			if strings.HasPrefix(e, "MSCCLPP_UNIQUE_ID=") {
				e = "MSCCLPP_UNIQUE_ID=(hidden)"
			}
			vars = append(vars, e)
		}
		bound := ""
		if j.Masks != nil {
			bound = "taskset -c " + j.Masks[i].String() + " "
		}
		words := []string{j.Path}
		for _, arg := range j.Args[1:] {
			words = append(words, quote(arg))
		}
		if _, err := fmt.Fprintf(a.stdout, "%s %s%s\n", strings.Join(vars, " "), bound, strings.Join(words, " ")); err != nil {
			return err
		}
	}
	return nil
}
