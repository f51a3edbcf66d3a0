package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/supervise"
	"github.com/mscclpp-go/mscclpp/internal/version"
	"github.com/mscclpp-go/mscclpp/launch"
	"github.com/mscclpp-go/mscclpp/launch/remote"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// launchHosts starts a program on the hosts of a list, over ssh.
func (a *app) launchHosts(program string, args []string, cfg *config.Effective) error {
	job, err := a.hostsJob(program, args, cfg)
	if err != nil {
		return err
	}
	if a.opts.dryRun {
		return printHosts(a.stdout, job)
	}
	signals := forJob()
	defer signal.Stop(signals) // the last messages may wait for a reader
	job.Signals = signals
	result, err := remote.Run(context.Background(), *job)
	var start *remote.StartError
	switch {
	case errors.As(err, &start):
		return &verb.Error{Code: start.Code, Err: err}
	case err != nil:
		return err
	case result.Code != 0:
		return &verb.Error{Code: result.Code}
	}
	return nil
}

// hostsJob is the job that the flags describe.
func (a *app) hostsJob(program string, args []string, cfg *config.Effective) (*remote.Job, error) {
	o := &a.opts
	if a.engine.Role != launch.RoleNone {
		return nil, verb.Usage("%s started this process as %v: its hosts are those of the job; leave out the list of hosts, or add --standalone to start another job", a.engine.Name, a.engine.Role)
	}
	if o.nnodes > 0 || o.nodeRank >= 0 || o.rendezvous != "" {
		return nil, verb.Usage("--nnodes, --node-rank and --rendezvous are for hosts that each run mscclpp-run: expected none of them beside a list of hosts")
	}
	list, err := a.hostList(time.Duration(cfg.Bootstrap.Timeout))
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("own program: %w", err)
	}
	job := &remote.Job{
		Hosts: list, Total: o.np, SSH: strings.Fields(o.ssh), Agent: o.agent, Version: version.String(),
		Timeout: time.Duration(cfg.Bootstrap.Timeout), Count: question(&cfg.Config),
		Stdout: a.stdout, Stderr: a.stderr, Report: a.stderr,
		Spec: remote.Spec{
			Program: program, Args: args, Dir: o.dir,
			Place: launch.Place{MasterPort: o.masterPort},
			At:    o.masterAddr, Interface: cfg.Bootstrap.Interface, Family: cfg.Bootstrap.Family,
			Bind:   cfg.Launch.Bind,
			Output: o.output(cfg),
			Linger: time.Duration(cfg.Launch.Linger), Grace: time.Duration(cfg.Launch.Grace),
			Bindings: o.showBinding,
		},
	}
	if len(job.SSH) == 0 {
		return nil, verb.Usage("--ssh %q: expected a command", o.ssh)
	}
	if job.Agent == "" {
		job.Agent = self
	}
	if program == self {
		job.Spec.Program = "" // a verb: of the one there
	}
	if job.Spec.Dir == "" {
		if job.Spec.Dir, err = os.Getwd(); err != nil {
			return nil, fmt.Errorf("working folder: %w", err)
		}
	}
	if job.Each, job.Of, err = a.perHost(); err != nil {
		return nil, err
	}
	if job.Of == "" { // said before any host is called
		if _, err := remote.Spread(list, job.Total, job.Each); err != nil {
			return nil, &verb.Error{Code: 2, Err: err}
		}
	}
	if o.quiet {
		job.Report = io.Discard
	}
	if !o.noStdin && mayRead(os.Stdin) {
		job.Stdin = os.Stdin
	}
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails
	job.Name = hex.EncodeToString(name[:])
	job.Spec.Env, err = a.exported()
	return job, err
}

func (a *app) hostList(patience time.Duration) ([]remote.Host, error) {
	o := &a.opts
	if o.hostfile != "" && o.hosts != "" {
		return nil, verb.Usage("--hostfile and --host: expected one of them")
	}
	if o.hosts != "" {
		list, err := remote.ParseHosts(o.hosts)
		if err != nil {
			return nil, verb.Usage("--host %s: %w", o.hosts, err)
		}
		return list, nil
	}
	text, err := verb.ReadInput(o.hostfile, patience)
	if err != nil {
		return nil, fmt.Errorf("--hostfile: %w", err)
	}
	list, err := remote.ReadHostfile(bytes.NewReader(text), o.hostfile)
	if err != nil {
		err = fmt.Errorf("--hostfile %w", err)
	}
	return list, err
}

// perHost reads --nproc-per-node, whose gpu and cpu are counted on the hosts.
func (a *app) perHost() (each int, of string, err error) {
	switch a.opts.perNode {
	case "gpu", "cpu", "auto":
		return 0, a.opts.perNode, nil
	case "":
		return 0, "", nil
	}
	b := &app{opts: options{perNode: a.opts.perNode}}
	each, err = b.local()
	return each, "", err
}

// mayRead reports whether a file can be read without this process being stopped: a
// terminal only by the group in its foreground.
func mayRead(f *os.File) bool {
	fd := int(f.Fd())
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
		return true
	}
	front, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && front == unix.Getpgrp()
}

func printHosts(w io.Writer, j *remote.Job) error {
	counts, err := remote.Spread(j.Hosts, j.Total, j.Each)
	if err != nil {
		return err
	}
	for i, h := range j.Hosts {
		ranks := fmt.Sprint(counts[i])
		if j.Of != "" {
			ranks = "one for each " + j.Of
		}
		words := make([]string, len(j.Spec.Args))
		for i, w := range j.Spec.Args {
			words[i] = quote(w)
		}
		if _, err := fmt.Fprintf(w, "%s %s %s %s: ranks: %s: %s\n", strings.Join(j.SSH, " "), h.Name, j.Agent, remote.AgentFlag, ranks, strings.Join(words, " ")); err != nil {
			return err
		}
	}
	return nil
}

// serveAgent is mscclpp-run on a host where another one started it.
func (a *app) serveAgent() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	// A launcher that is gone is noticed by the end of the input. Its broken pipe must not end the
	// process that ends the ranks; and ranks would inherit a signal that is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	env := os.Environ()
	if dir := plugins.BuiltInDir(); dir != "" {
		env = append(env, plugins.EnvBuiltIn+"="+dir)
	}
	agent := remote.Agent{
		In: os.Stdin, Out: os.Stdout, Version: version.String(), Self: self, Env: env,
		Supervisor: []string{self, supervise.Arg},
		Count:      func(ctx context.Context, q remote.Count) (int, error) { return countDevices(ctx, os.DirFS("/"), q) },
	}
	if code := agent.Serve(ctx); code != 0 {
		return &verb.Error{Code: code}
	}
	return nil
}
