// Package mscclpp joins a program to a job and gives it collectives.
//
// A program that was started by mscclpp-run (or torchrun, mpirun, Slurm) calls [Init]
// and gets a [Job]: its rank, its communicator and all collectives.
//
//	job, err := mscclpp.Init(ctx)
//	if err != nil { … }
//	defer job.Close()
//	err = job.AllReduce(in, out, count, mscclpp.Float32, mscclpp.Sum, nil)
//
// The layers below are public as well: package framework/comm builds channels, package
// framework is the contract for transports, and package plugins is the boundary to
// their processes. This package only combines them as the configuration says.
package mscclpp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/setup"
	"github.com/mscclpp-go/mscclpp/launch"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// Element types and reductions, so that simple programs import one package.
const (
	Float32       = kernel.Float32
	Float16       = kernel.Float16
	BFloat16      = kernel.BFloat16
	Float64       = kernel.Float64
	Int8          = kernel.Int8
	Uint8         = kernel.Uint8
	Int32         = kernel.Int32
	Uint32        = kernel.Uint32
	Int64         = kernel.Int64
	Uint64        = kernel.Uint64
	Float8E4M3    = kernel.Float8E4M3
	Float8E5M2    = kernel.Float8E5M2
	Float8E4M3B15 = kernel.Float8E4M3B15

	Sum       = kernel.Sum
	Prod      = kernel.Prod
	Min       = kernel.Min
	Max       = kernel.Max
	Avg       = kernel.Avg
	PreMulSum = kernel.PreMulSum
)

// Job is one rank of a running job. The embedded Comm has the collectives.
type Job struct {
	*collectives.Comm

	// World is the communicator of all ranks, for channels, memory and Split.
	World *comm.Communicator

	// Config is the configuration in effect, with the origin of each value.
	Config *config.Effective

	parts   *setup.Job // nil if the start failed
	logFile io.Closer
	dumper  *dumper
	once    sync.Once
}

// Option changes what Init does.
type Option func(*initOptions)

type initOptions struct {
	settings []config.Setting
	file     string
	device   string
	log      *slog.Logger
	dump     os.Signal // nil: none is handled
	getenv   func(string) string
}

// WithSetting overrides one configuration key, as a flag does:
// WithSetting("comm.scratch", "64MiB").
func WithSetting(key, value string) Option {
	return func(o *initOptions) {
		o.settings = append(o.settings, config.Setting{Key: key, Value: value, Flag: "WithSetting"})
	}
}

// WithConfigFile names the job's configuration file. Without this option the
// environment variable MSCCLPP_CONFIG names it.
func WithConfigFile(path string) Option {
	return func(o *initOptions) { o.file = path }
}

// WithLog sends the log messages of this module to l instead of the destination in the
// configuration.
func WithLog(l *slog.Logger) Option {
	return func(o *initOptions) { o.log = l }
}

// WithDevice says where the program's buffers are: host, cuda, cuda:N, hip, hip:N, or auto. The
// configuration key "device" has the same meaning and overrides this option. The
// default is host.
func WithDevice(name string) Option {
	return func(o *initOptions) { o.device = name }
}

// WithVariables makes Init take this rank's place in the job from the given variables;
// a variable that is not among them is taken from the environment. They are RANK,
// WORLD_SIZE and LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or MSCCLPP_UNIQUE_ID, and
// whatever else a launcher sets for each rank. If RANK and WORLD_SIZE are given, the
// launcher of the process does not count: its own variables, such as those of Open MPI and
// Slurm, are not looked at. A process that runs several ranks calls Init for each of them
// concurrently.
func WithVariables(variables map[string]string) Option {
	placed := variables[bootstrap.EnvRank] != "" && variables[bootstrap.EnvSize] != ""
	return func(o *initOptions) {
		o.getenv = func(name string) string {
			v, given := variables[name]
			switch {
			case given:
				return v
			case placed && launch.OfEngine(name):
				return ""
			}
			return os.Getenv(name)
		}
	}
}

// WithDumpSignal makes a signal print the output of Job.Dump to standard error, from the
// call of Init until the job is closed. Without this option, and without the configuration
// key "log.dump_signal", which overrides it, Init handles no signal: SIGUSR1 and SIGUSR2
// belong to the program, to schedulers and to other libraries.
func WithDumpSignal(s os.Signal) Option {
	return func(o *initOptions) { o.dump = s }
}

// WithoutDumpSignal undoes WithDumpSignal.
func WithoutDumpSignal() Option {
	return func(o *initOptions) { o.dump = nil }
}

// Init joins the job that the environment describes, starts the configured transports
// and builds the communicator of all ranks. If no launcher has set any variables, the
// job has one rank. Init is collective, and fails when ctx ends.
func Init(ctx context.Context, options ...Option) (*Job, error) {
	o := initOptions{getenv: os.Getenv}
	for _, option := range options {
		option(&o)
	}
	cfg, err := config.Load(config.Standard(o.file, o.settings))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	j := &Job{Config: cfg}
	if o.log == nil {
		if o.log, j.logFile, err = setup.OpenLog(cfg.Log, o.getenv(bootstrap.EnvRank)); err != nil {
			return nil, err
		}
	}
	for _, w := range cfg.Warnings {
		o.log.Warn("configuration", "warning", w)
	}
	j.dumper = newDumper(dumpSignal(cfg.Log.DumpSignal, o.dump), os.Stderr)
	j.parts, err = setup.Start(ctx, setup.Plan{
		Config: cfg, Getenv: o.getenv, Device: o.device, BuiltIn: plugins.BuiltInDir(), Log: o.log, Joined: j.dumper.show,
	})
	if err != nil {
		return nil, errors.Join(err, j.release())
	}
	j.Comm, j.World = j.parts.Comm, j.parts.World
	return j, nil
}

// Catalog returns the places where a configuration looks for plugins.
func Catalog(cfg *config.Config) plugins.Catalog { return setup.Catalog(cfg, plugins.BuiltInDir()) }

// Device returns the device on which the job's kernels run.
func (j *Job) Device() device.Device { return j.parts.Device }

// Rank returns the number of this rank, from 0.
func (j *Job) Rank() int { return j.World.Rank() }

// Size returns the number of ranks.
func (j *Job) Size() int { return j.World.Size() }

// Close leaves the job in an orderly way. It does not wait for the other ranks. Communicators
// that were split off are closed as well; calls in progress, on them too, end with ErrClosed.
func (j *Job) Close() error {
	var err error
	j.once.Do(func() { err = j.release() })
	return err
}

func (j *Job) release() error {
	var all []error
	if j.parts != nil {
		all = append(all, j.parts.CloseComm())
	}
	j.dumper.stop() // now, for a signal may ask what Close waits for
	if j.parts != nil {
		all = append(all, j.parts.Close(true))
	}
	if j.logFile != nil {
		all = append(all, j.logFile.Close())
	}
	return errors.Join(all...)
}
