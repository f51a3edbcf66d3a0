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
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
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

	boot       *bootstrap.TCP
	device     device.Device
	transports []*setup.Opened
	logFile    io.Closer
	dumper     *dumper
	once       sync.Once
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

// WithDevice says where the program's buffers are: host, cuda, cuda:N, or auto. The
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
	if err := j.start(ctx, o.device, o.getenv, o.log); err != nil {
		return nil, errors.Join(err, j.abandon(err))
	}
	return j, nil
}

// start builds the job, up to its collectives.
func (j *Job) start(ctx context.Context, wanted string, getenv func(string) string, log *slog.Logger) error {
	cfg := &j.Config.Config
	where, err := setup.ChooseDevice(cfg.Device, wanted, getenv, log)
	if err != nil {
		return err
	}
	cfg.Transports = cfg.TransportsOn(where.Type)
	boot, err := setup.Bootstrap(ctx, cfg, getenv, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cfg.Bootstrap.Timeout+cfg.Plugins.StartTimeout))
	defer cancel()
	if err := j.open(ctx, where, boot, log); err != nil {
		return err
	}
	turn := setup.Turn(getenv, j.boot.Rank(), j.boot.HostRanks())
	facts := setup.Facts(os.DirFS("/"), j.device, boot.HostID, turn, log)
	if len(j.boot.HostRanks()) == j.boot.Size() {
		setup.OneHost(&facts)
	}
	if j.World, err = comm.New(ctx, j.boot, comm.Options{
		Device:     j.device,
		Transports: setup.InUse(j.transports),
		Facts:      facts,
		Deadline:   uint64(cfg.Comm.Deadline),
		Grace:      time.Duration(cfg.Launch.Grace),
		Log:        log,
	}); err != nil {
		return err
	}
	if j.dumper != nil {
		j.dumper.world.Store(j.World)
	}
	o, err := setup.CollectiveOptions(cfg)
	if err != nil {
		return err
	}
	if where.Type != "host" {
		found := setup.ProbeLinks(ctx, setup.InUse(j.transports), facts)
		if cfg.Collectives.Lines == "auto" {
			o.NoLines = setup.TearsLines(found, log)
		}
		o.Links = setup.Links(os.DirFS("/"), found, facts, cfg.GPUMemory == "host")
	}
	j.Comm, err = collectives.New(ctx, j.World, o)
	var row *collectives.RowError
	if errors.As(err, &row) {
		err = fmt.Errorf("%s: %w", j.Config.Origin("collectives.table"), err)
	}
	return err
}

// lastWords is the time that a rank whose transports do not start has to join the
// others, in order to tell them.
const lastWords = 2 * time.Second

// open opens device and transports while the ranks find each other: both wait for
// other processes, and start-up is as long as the longer one. The error is what
// failed first.
func (j *Job) open(ctx context.Context, where framework.Device, boot bootstrap.Config, log *slog.Logger) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first sync.Once
	failed := func(cause error) { first.Do(func() { err = cause }) }
	var both sync.WaitGroup
	both.Go(func() {
		var cause error
		if j.boot, cause = bootstrap.Join(ctx, boot); cause != nil {
			failed(cause)
			cancel(cause) // transports are of no use
		}
	})
	both.Go(func() {
		var cause error
		if j.transports, cause = setup.OpenTransports(ctx, j.Config, plugins.BuiltInDir(), log); cause != nil {
			failed(cause)
			time.AfterFunc(lastWords, func() { cancel(cause) })
		}
	})
	var cause error
	if j.device, cause = setup.OpenDevice(where, &j.Config.Config); cause != nil {
		failed(cause)
		cancel(cause)
	}
	both.Wait()
	return err
}

// Catalog returns the places where a configuration looks for plugins.
func Catalog(cfg *config.Config) plugins.Catalog { return setup.Catalog(cfg, plugins.BuiltInDir()) }

// Device returns the device on which the job's kernels run.
func (j *Job) Device() device.Device { return j.device }

// Rank returns the number of this rank, from 0.
func (j *Job) Rank() int { return j.World.Rank() }

// Size returns the number of ranks.
func (j *Job) Size() int { return j.World.Size() }

// Close leaves the job in an orderly way. It does not wait for the other ranks.
func (j *Job) Close() error {
	var err error
	j.once.Do(func() { err = j.release(func() { j.boot.Leave() }) })
	return err
}

// abandon releases what a failed start left, and tells the others why.
func (j *Job) abandon(cause error) error {
	if j.boot != nil && j.boot.Err() == nil { // else they know
		j.boot.Announce(cause)
	}
	return j.release(func() {})
}

func (j *Job) release(farewell func()) error {
	var all []error
	if j.Comm != nil {
		all = append(all, j.Comm.Close())
	}
	if j.World != nil {
		all = append(all, j.World.Close())
	}
	j.dumper.stop() // now, for a signal may ask what Close waits for
	for _, t := range j.transports {
		all = append(all, t.Close())
	}
	if j.device != nil {
		all = append(all, j.device.Close())
	}
	if j.boot != nil {
		farewell()
		all = append(all, j.boot.Close())
	}
	if j.logFile != nil {
		all = append(all, j.logFile.Close())
	}
	return errors.Join(all...)
}
