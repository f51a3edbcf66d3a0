package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/observe"
	"github.com/mscclpp-go/mscclpp/plan/attach"
)

// Plan says what a job is put together from.
type Plan struct {
	Config  *config.Effective
	Getenv  func(string) string // the launcher's variables
	Device  string              // as the program would have it; the configuration comes first
	BuiltIn string              // folder of the plugins that come with the program
	Log     *slog.Logger

	// Place is this rank's place in a job that has a unique id; nil: the variables say it.
	Place *Place

	// Joined, if set, gets the communicator as soon as it is there, before its collectives.
	Joined func(*comm.Communicator)
}

// Place is a rank of a job that has a unique id.
type Place struct {
	ID         bootstrap.UniqueID
	Rank, Size int
	Listener   net.Listener // for rank 0, if this process made the id
}

// Job is one rank of a running job.
type Job struct {
	Comm   *collectives.Comm
	World  *comm.Communicator
	Boot   *bootstrap.TCP
	Device device.Device

	// Observer gets what the rank does; nil: it goes nowhere.
	Observer *observe.Rank

	// Collectives are the options of Comm; communicators that are split off have the same.
	Collectives collectives.Options

	log        *slog.Logger
	plans      []attach.Loaded
	transports []*Opened
	watched    context.CancelFunc
	recorder   *recorder
	flight     string // folder of the flight recorder, or none
}

// Start puts a job together. It is collective. After an error nothing is left of the job,
// and the other ranks know.
func Start(ctx context.Context, p Plan) (*Job, error) {
	j := &Job{log: p.Log}
	own := *p.Config // jobs of one process may have the configuration in common
	p.Config = &own
	if err := j.start(ctx, &p); err != nil {
		j.Observer.Fail(err)
		if j.Boot != nil && j.Boot.Err() == nil { // else they know
			j.Boot.Announce(err)
		}
		return nil, errors.Join(err, j.CloseComm(), j.Close(false))
	}
	return j, nil
}

// start builds the job, up to its collectives.
func (j *Job) start(ctx context.Context, p *Plan) error {
	cfg := &p.Config.Config
	where, err := chooseDevice(cfg, p.Device, p.Getenv, p.Log)
	if err != nil {
		return err
	}
	named := len(cfg.Transports) > 0 || len(cfg.Devices[where.Type].Transports) > 0
	cfg.Transports = cfg.TransportsOn(where.Type)
	boot, err := p.bootstrap(ctx)
	if err != nil {
		return err
	}
	j.observe(p, &boot)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(cfg.Bootstrap.Timeout+cfg.Plugins.StartTimeout))
	defer cancel()
	if err := j.open(ctx, p, where, boot); err != nil {
		return err
	}
	if !named {
		if err := j.joinHosts(ctx, p); err != nil {
			return err
		}
	}
	if cfg.Collectives.Preload {
		if err := j.preload(p.Log); err != nil {
			return err
		}
	}
	turn := Turn(p.Getenv, j.Boot.Rank(), j.Boot.HostRanks())
	facts := Facts(os.DirFS("/"), j.Device, boot.HostID, turn, p.Log)
	if len(j.Boot.HostRanks()) == j.Boot.Size() {
		oneHost(&facts)
	}
	if j.World, err = comm.New(ctx, j.Boot, comm.Options{
		Device:     j.Device,
		Transports: inUse(j.transports),
		Facts:      facts,
		Deadline:   uint64(cfg.Comm.Deadline),
		Grace:      time.Duration(cfg.Launch.Grace),
		Log:        p.Log,
		Observer:   j.Observer,
	}); err != nil {
		return err
	}
	if err := j.seen(ctx, where); err != nil {
		return err
	}
	if p.Joined != nil {
		p.Joined(j.World)
	}
	o := &j.Collectives
	if *o, err = collectiveOptions(cfg); err != nil {
		return err
	}
	if where.Type != "host" {
		found := probeLinks(ctx, inUse(j.transports), facts)
		if cfg.Collectives.Lines == "auto" {
			o.NoLines = tearsLines(found, p.Log)
		}
		o.Links = Links(os.DirFS("/"), where.Type, found, facts, cfg.GPUMemory == "host")
	}
	if err = j.readPlans(cfg); err != nil {
		return err
	}
	j.Comm, err = j.NewCollectives(ctx, j.World)
	var row *collectives.RowError
	if errors.As(err, &row) {
		err = fmt.Errorf("%s: %w", p.Config.Origin("collectives.table"), err)
	}
	return err
}

// preload loads the kernels of which there is machine code.
func (j *Job) preload(log *slog.Logger) error {
	began := time.Now()
	for _, t := range j.transports {
		if err := t.Preload(j.Device, collectives.Layouts()); err != nil {
			return fmt.Errorf("transport %s: preload: %w", t.Name, err)
		}
		for form, n := range t.Forms() {
			log.Info("kernels are loaded", "transport", t.Name, "images", n, "form", form, "took", time.Since(began))
		}
	}
	return nil
}

// bootstrap is how this rank meets the others.
func (p *Plan) bootstrap(ctx context.Context) (bootstrap.Config, error) {
	if p.Place == nil {
		return Bootstrap(ctx, &p.Config.Config, p.Getenv, p.Log)
	}
	b := bootstrap.Config{ID: p.Place.ID, Rank: p.Place.Rank, Size: p.Place.Size, Listener: p.Place.Listener}
	settle(&b, &p.Config.Config, p.Log)
	return b, nil
}

// lastWords is the time that a rank whose transports do not start has to join the
// others, in order to tell them.
const lastWords = 2 * time.Second

// open opens device and transports while the ranks find each other: both wait for
// other processes, and start-up is as long as the longer one. The error is what
// failed first.
func (j *Job) open(ctx context.Context, p *Plan, where framework.Device, boot bootstrap.Config) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var first sync.Once
	failed := func(cause error) { first.Do(func() { err = cause }) }
	var both sync.WaitGroup
	both.Go(func() {
		var cause error
		if j.Boot, cause = bootstrap.Join(ctx, boot); cause != nil {
			failed(cause)
			cancel(cause) // transports are of no use
		}
	})
	both.Go(func() {
		var cause error
		if j.transports, cause = openTransports(ctx, p.Config, p.BuiltIn, p.Log, j.region()...); cause != nil {
			failed(cause)
			time.AfterFunc(lastWords, func() { cancel(cause) })
		}
	})
	var cause error
	if j.Device, cause = openDevice(where, &p.Config.Config, p.BuiltIn, p.Log); cause != nil {
		failed(cause)
		cancel(cause)
	}
	both.Wait()
	return err
}

// betweenHosts is the transport between hosts where the configuration names none: every host has it.
const betweenHosts = "tcp"

// joinHosts opens what joins the hosts of the job, if there are several. The ranks agree on that without
// a word: each one sees whether all of them are on its host.
func (j *Job) joinHosts(ctx context.Context, p *Plan) error {
	cfg := &p.Config.Config
	if len(j.Boot.HostRanks()) == j.Boot.Size() {
		return nil
	}
	cfg.Transports = append(slices.Clone(cfg.Transports), betweenHosts)
	t, err := openTransport(ctx, cfg, betweenHosts, p.BuiltIn, p.Log, j.region())
	if err != nil {
		return fmt.Errorf("the ranks are on several hosts, and transports names none, so that %s is to join them: %w", betweenHosts, err)
	}
	j.transports = append(j.transports, t)
	level, hint := slog.LevelInfo, ""
	if adapters, err := os.ReadDir("/sys/class/infiniband"); err == nil && len(adapters) > 0 {
		level, hint = slog.LevelWarn, "; this host has adapters for RDMA: transports with ib-host or ib-nonatomic uses them"
	}
	p.Log.Log(ctx, level, "the ranks are on several hosts: "+betweenHosts+" joins them, since transports names none"+hint)
	return nil
}

// CloseComm closes the communicator and its collectives. The parts that Close closes may still be in
// use by communicators that were split off. A plugin that takes too long is no error.
func (j *Job) CloseComm() error {
	var all []error
	j.Observer.OnDump(nil) // the communicator is about to go
	if j.Comm != nil {
		all = append(all, j.Comm.Close())
	}
	if j.World != nil {
		all = append(all, j.World.Close())
	}
	return j.Released(errors.Join(all...))
}

// Close closes transports and device, and leaves the other ranks: with a goodbye if leave
// is set. It comes after CloseComm, once. Communicators that were split off and are still
// open are closed before, and calls in progress on them end.
func (j *Job) Close(leave bool) error {
	var all []error
	if j.World != nil {
		all = append(all, j.Released(j.World.CloseSplits()))
	}
	for _, t := range j.transports {
		all = append(all, t.Close())
	}
	if j.Device != nil {
		all = append(all, j.Device.Close())
	}
	j.recorder.end(j.Boot)
	j.fly()
	if j.Boot != nil {
		if leave {
			j.Boot.Leave()
		}
		all = append(all, j.Boot.Close())
	}
	all = append(all, j.unseen())
	return errors.Join(all...)
}

// Transports lists the names of the job's transports, in order of preference.
func (j *Job) Transports() []string {
	names := make([]string, len(j.transports))
	for i, t := range j.transports {
		names[i] = t.Name
	}
	return names
}
