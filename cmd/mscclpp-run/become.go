package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch"
)

// become replaces this process by the program: the engine made a process for each
// rank already.
func (a *app) become(path string, args, env []string) error {
	if err := a.asRank(); err != nil {
		return err
	}
	e := a.engine
	job := launch.Job{Env: env, ID: os.Getenv(launch.Mark), Place: launch.Place{
		Local: e.LocalWorld, First: e.Rank - e.LocalRank, World: e.World, Node: e.Node, Nodes: e.Nodes, Job: jobName(e),
		MasterAddr: e.MasterAddr, MasterPort: e.MasterPort,
	}}
	if a.opts.dryRun {
		return a.printRank(args)
	}
	if a.opts.dir != "" {
		if err := os.Chdir(a.opts.dir); err != nil {
			return err
		}
	}
	err := syscall.Exec(path, args, job.RankEnv(e.LocalRank))
	return &verb.Error{Code: launch.StartCode(err), Err: fmt.Errorf("program %s: %w", path, err)}
}

// asRank takes what flags say where the engine made the ranks. Flags that only a launcher of ranks
// can obey cause one warning in a job.
func (a *app) asRank() error {
	if names := a.idle(); len(names) > 0 && a.engine.Rank == 0 {
		fmt.Fprintf(a.stderr, "mscclpp-run: warning: no effect, because %s made the ranks: %s: expected options of %s, or one process of it for each host and -n here\n",
			a.engine.Name, strings.Join(names, ", "), a.engine.Name)
	}
	p := launch.Place{MasterAddr: a.engine.MasterAddr, MasterPort: a.engine.MasterPort}
	err := a.meetingPoint(&p)
	a.engine.MasterAddr, a.engine.MasterPort = p.MasterAddr, p.MasterPort
	return err
}

// idle names the flags that have no effect in a rank that an engine started. Preferences of the
// machine and of the user are for jobs that this program starts.
func (a *app) idle() (names []string) {
	if a.effective != nil {
		now, silent := reflect.ValueOf(a.effective.Launch), reflect.ValueOf(config.Default().Launch)
		for i := range now.NumField() {
			key := "launch." + now.Type().Field(i).Tag.Get("config")
			from := a.effective.Origin(key)
			switch {
			case key == "launch.grace": // ranks have to know it
			case key == "launch.bind" && a.effective.Launch.Bind == "none": // as asked
			case now.Field(i).Equal(silent.Field(i)):
			case from.Layer == "flag" && from.Source == "--set":
				names = append(names, "--set "+key)
			case from.Layer == "flag":
				names = append(names, from.String())
			case a.engine.Name == "mscclpp-run": // the one around this has done it
			case from.Layer == "job" || from.Layer == "environment":
				names = append(names, from.String()+" ("+key+")")
			}
		}
	}
	o := &a.opts
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"--tee", o.tee}, {"--report-bindings", o.showBinding}, {"--no-stdin", o.noStdin}, {"--nnodes", o.nnodes > 0}, {"--node-rank", o.nodeRank >= 0},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

// printRank prints what a rank that an engine made would run.
func (a *app) printRank(args []string) error {
	e := a.engine
	_, err := fmt.Fprintf(a.stdout, "rank %d of %d (%s): %s\n", e.Rank, e.World, e.Name, strings.Join(args, " "))
	return err
}
