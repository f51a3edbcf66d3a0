package sight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/traces"
)

// errNoJob ends the verbs that look at running jobs.
func errNoJob(job string) error {
	if job == "" {
		return &verb.Error{Code: 1, Err: errors.New("no job of this user runs on this host, or none that can be observed")}
	}
	return &verb.Error{Code: 1, Err: fmt.Errorf("job %s: no such job of this user runs on this host: mscclpp-run status lists those that do", job)}
}

type statusVerb struct {
	env    *verb.Env
	format string
	watch  bool
	dump   bool
	every  time.Duration
}

// StatusVerb returns the verb status, which prints what the ranks of running jobs do.
func StatusVerb(env *verb.Env) *cobra.Command {
	v := statusVerb{env: env}
	c := &cobra.Command{
		Use:  "[JOB]",
		Long: "Prints what the ranks on this host of running jobs of this user do. JOB is the name of a job, or the process id of one of its ranks. The job does not notice.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return v.run(c.Context(), append(args, "")[0]) },
	}
	c.Flags().StringVar(&v.format, "format", "table", "table, or json")
	c.Flags().BoolVarP(&v.watch, "watch", "w", false, "print again and again, until the job ends")
	c.Flags().BoolVar(&v.dump, "dump", false, "print the state of every channel of each rank as well: expected and seen counts; the ranks write it")
	c.Flags().DurationVar(&v.every, "every", time.Second, "with --watch: how often")
	return c
}

func (v *statusVerb) run(ctx context.Context, job string) error {
	if v.format != "table" && v.format != "json" {
		return verb.Usage("status: --format %q: expected table or json", v.format)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	for n := 0; ; n++ {
		all, err := lookAtAll(job, aMoment)
		if err != nil {
			return err
		}
		if v.dump {
			if err := dumpInto(ctx, all); err != nil {
				return err
			}
		}
		if len(all) == 0 {
			if n > 0 {
				return nil
			}
			return errNoJob(job)
		}
		if err := v.print(all, n); err != nil || !v.watch || v.env.OutputClosed() {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(v.every):
		}
	}
}

func (v *statusVerb) print(all []JobStatus, n int) error {
	if v.format == "json" {
		return json.NewEncoder(v.env.Stdout).Encode(all)
	}
	if n > 0 && v.env.Terminal() {
		fmt.Fprint(v.env.Stdout, "\x1b[H\x1b[J") // over the one before
		n = 0
	}
	for i := range all {
		if i > 0 || n > 0 {
			fmt.Fprintln(v.env.Stdout)
		}
		all[i].Print(v.env.Stdout)
	}
	return nil
}

type traceVerb struct {
	env    *verb.Env
	format string
	job    string
	span   time.Duration
	out    string
	svg    string
}

// TraceVerb returns the verb trace, which summarizes a trace file, or records a running job.
func TraceVerb(env *verb.Env) *cobra.Command {
	v := traceVerb{env: env}
	c := &cobra.Command{
		Use: "[FILE…]",
		Long: "Tells what is in the traces that mscclpp-run --trace has written, one of each host, or in a folder of the flight recorder. " +
			"With --job it records a running job of this user for a while: records are switched on, read and switched off.",
		RunE: func(c *cobra.Command, args []string) error { return v.run(c.Context(), args) },
	}
	c.Flags().StringVar(&v.format, "format", "text", "text, or json")
	c.Flags().StringVar(&v.job, "job", "", "record this running job: its name, or the process id of one of its ranks")
	c.Flags().DurationVar(&v.span, "for", 2*time.Second, "with --job: how long")
	c.Flags().StringVarP(&v.out, "output", "o", "", "write the trace, of all files, to this file, for ui.perfetto.dev")
	c.Flags().StringVar(&v.svg, "svg", "", "draw the calls of all ranks into this file")
	return c
}

func (v *traceVerb) run(ctx context.Context, files []string) error {
	if v.format != "text" && v.format != "json" {
		return verb.Usage("trace: --format %q: expected text or json", v.format)
	}
	if (v.job == "") == (len(files) == 0) {
		return verb.Usage("trace: expected files, or --job with a running job")
	}
	var t *traces.Trace
	var err error
	if v.job != "" {
		t, err = record(ctx, v.job, v.span)
	} else {
		t, err = traces.ReadAll(files)
	}
	if err != nil {
		return err
	}
	if v.out != "" {
		if err := atomicfile.File(v.out, func(w io.Writer) error { return t.WritePerfetto(w) }); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
	}
	if v.svg != "" {
		if err := atomicfile.File(v.svg, func(w io.Writer) error { return t.DrawSVG(w) }); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
	}
	s := t.Tell()
	if v.format == "json" {
		return json.NewEncoder(v.env.Stdout).Encode(s)
	}
	s.Print(v.env.Stdout)
	return nil
}

// record switches records of a running job on, reads them for a while, and switches them off unless they were on.
func record(ctx context.Context, job string, span time.Duration) (*traces.Trace, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	memories, err := observe.Find(true)
	if err != nil {
		return nil, err
	}
	name, mine, on := "", []*observe.Memory(nil), false
	for _, m := range memories {
		used := false
		for _, v := range m.Views() {
			if i := v.Info(); i.PID != 0 && (i.Job == job || fmt.Sprint(i.PID) == job) {
				name, used, on = i.Job, true, on || i.On
			}
		}
		if used {
			mine = append(mine, m)
		}
		defer m.Close()
	}
	if name == "" {
		return nil, errNoJob(job)
	}
	turn := func(on bool) (err error) {
		for _, m := range mine {
			err = errors.Join(err, m.Switch(on))
		}
		return err
	}
	c := traces.NewCollector(mine...)
	c.Poll()
	c.Forget()
	if !on {
		if err := turn(true); err != nil {
			return nil, err
		}
	}
	c.Start()
	select {
	case <-time.After(span):
	case <-ctx.Done():
	}
	if !on {
		err = turn(false)
	}
	c.Stop()
	c.Poll()
	return c.Trace(name), err
}
