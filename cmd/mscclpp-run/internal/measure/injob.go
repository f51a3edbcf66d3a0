// Package measure has the verbs that run in all ranks of a job: bench, check and tune.
package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	mscclpp "github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
)

// inJob joins the job that this process is a rank of, and leaves it afterwards. An
// error of the work ends the job, but for one of the output: the others learn of it, and
// do not wait for a rank that gave up. device is what the flag of this name says: "" leaves it to the
// configuration, and takes a GPU if that is silent and there is one.
func inJob(device string, work func(context.Context, *group) error) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A write to a closed pipe is an error then, and does not end the process: the
	// other ranks would blame this one.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	options := []mscclpp.Option{mscclpp.WithDevice("auto"), mscclpp.WithDumpSignal(syscall.SIGUSR1)}
	if device != "" {
		options = append(options, mscclpp.WithSetting("device", device))
	}
	job, err := mscclpp.Init(ctx, options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	// A signal ends kernels that wait as well: the goroutine that works may be in
	// the driver, waiting for them.
	defer context.AfterFunc(ctx, func() { job.World.Abort(context.Cause(ctx)) })()
	g := &group{job: job, ctx: ctx}
	if dev := measuredOn(job.Device()); dev != nil {
		if g.queue, err = newQueue(dev, job.World.Check); err != nil {
			return err
		}
		g.opts.Stream = g.queue.stream
		defer func() { err = errors.Join(err, g.queue.close()) }()
	}
	err = settle(g)
	if err == nil {
		err = work(ctx, g)
	}
	var quiet *verb.Error
	var output outputError
	switch {
	case err == nil, errors.As(err, &output):
		return errors.Join(err, job.World.Barrier(ctx)) // no rank leaves while another still measures
	case !errors.As(err, &quiet):
		job.World.Abort(err)
	}
	return err
}

// outputError is of what rank 0 prints or writes: a disk that is full, say. It is no failure of the
// job: the other ranks end as they would without it, and name no rank as the cause.
type outputError struct{ error }

func (e outputError) Unwrap() error { return e.error }

func ofOutput(err error) error {
	if err == nil {
		return nil
	}
	return outputError{err}
}

// settle makes a first call where ranks do not all share memory: that call finds out which
// algorithms there are over hosts, and a question before it gets another answer than after.
func settle(g *group) error {
	if g.job.Comm.Shared() {
		return nil
	}
	if err := g.Barrier(); err != nil && !errors.Is(err, framework.ErrUnsupported) {
		return err
	}
	return nil // the work itself will report a tool that is missing altogether
}

// writable has all ranks end where rank 0, which alone says why, cannot write a file: before
// the measurement takes its time.
func writable(ctx context.Context, g *group, flag, path string) error {
	if path == "" {
		return nil
	}
	var wrong error
	if g.Rank() == 0 {
		wrong = verb.Writable(path)
	}
	verdict := []byte{0}
	if wrong != nil {
		verdict[0] = 1
	}
	all, err := g.AllGather(ctx, verdict)
	switch {
	case err != nil:
		return fmt.Errorf("%s: agreement of ranks: %w", flag, err)
	case wrong != nil:
		return &verb.Error{Code: 1, Err: fmt.Errorf("%s %s: %w", flag, path, wrong)}
	case len(all[0]) == 1 && all[0][0] != 0:
		return &verb.Error{Code: 1}
	}
	return nil
}

// served says which transports carry the links of this rank.
func served(job *mscclpp.Job) bench.Served {
	var names, sources []string
	s := bench.Served{Process: true, Device: job.Device().Info().Device.String()}
	seen := map[string]bool{}
	for _, l := range job.World.Links() {
		if l.Kind != framework.KindMemory && l.Kind != framework.KindPort || seen[l.Transport.Name] {
			continue
		}
		seen[l.Transport.Name] = true
		names, sources = append(names, l.Transport.Name), append(sources, l.Transport.Source)
		s.Process = s.Process && l.Transport.Gone != nil
	}
	if len(names) == 0 {
		return bench.Served{Device: s.Device, Transport: "none", Source: "a single rank"}
	}
	s.Transport, s.Source = strings.Join(names, "+"), strings.Join(sources, ", ")
	return s
}

// said keeps one voice for a mistake that all ranks find alike.
func said(g *group, err error) error {
	if g.Rank() == 0 {
		return &verb.Error{Code: 2, Err: err}
	}
	return &verb.Error{Code: 2}
}
