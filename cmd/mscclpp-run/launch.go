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
	"github.com/mscclpp-go/mscclpp/framework/config"
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
	if a.opts.listsHosts() {
		if err := a.restarts(nil); err != nil {
			return err
		}
		return a.launchHosts(program, args, cfg)
	}
	job := a.opts.job(cfg)
	job.Supervisor, job.Guard = supervisor, guard
	if err := a.command(&job, program, args); err != nil {
		return err
	}
	place, err := a.place()
	if err != nil {
		return err
	}
	if err := a.restarts(place); err != nil {
		return err
	}
	if a.engine.Role == launch.RoleRank && place == nil {
		return a.become(job.Path, job.Args, job.Env)
	}
	job.Place = *place
	if job.Masks, err = launch.Bind(cfg.Launch.Bind, place.Local); err != nil {
		return err
	}
	if a.opts.showBinding {
		printBindings(a.stderr, &job)
	}
	return a.perform(job, cfg)
}

// command finds the program of a job, and the variables that its ranks get.
func (a *app) command(job *launch.Job, program string, args []string) (err error) {
	if job.Env, err = a.environ(); err != nil {
		return err
	}
	if job.Dir != "" {
		if err := enterable(job.Dir); err != nil {
			return &verb.Error{Code: launch.StartCode(err), Err: fmt.Errorf("--chdir %s: %w", job.Dir, err)}
		}
	}
	job.Path, job.Args, err = launch.Command(program, args, job.Dir, job.Env)
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(program, "/") && findVerb(program) == nil {
		err = fmt.Errorf("%w; nor is it a verb%s: %s", err, suggest.Hint(suggest.Name(program, strings.Split(verbNames(), ", "))), verbNames())
	}
	return &verb.Error{Code: launch.StartCode(err), Err: err}
}

// job describes a job on this host, by the flags and the configuration.
func (o *options) job(cfg *config.Effective) launch.Job {
	job := launch.Job{
		Dir:    o.dir,
		Stdout: os.Stdout, Stderr: os.Stderr, Report: os.Stderr,
		Output:     o.output(cfg),
		Linger:     time.Duration(cfg.Launch.Linger),
		Grace:      time.Duration(cfg.Launch.Grace),
		OwnOrphans: true,
	}
	if !o.noStdin {
		job.Stdin = os.Stdin
	}
	if o.quiet {
		job.Report = nil
	}
	return job
}

// output is where the output of ranks goes.
func (o *options) output(cfg *config.Effective) launch.Output {
	return launch.Output{Tag: cfg.Launch.TagOutput, Timestamp: cfg.Launch.Timestamp, Dir: cfg.Launch.OutputDir, Tee: o.tee}
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
	return !a.opts.listsHosts() && !a.opts.dryRun && a.engine.Role != launch.RoleRank
}

func printBindings(w io.Writer, j *launch.Job) {
	for i := range j.Place.Local {
		where := "not bound"
		if j.Masks != nil {
			where = "processors " + j.Masks[i].String()
		}
		fmt.Fprintf(w, "mscclpp-run: rank %d: %s\n", j.Place.First+i, where)
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
