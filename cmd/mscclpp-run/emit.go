package main

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch/manifest"
)

// emit prints a manifest for the job that the flags describe.
func (a *app) emit(program string, args []string) error {
	o, e := &a.opts, &a.opts.emit
	switch {
	case o.listsHosts():
		return verb.Usage("--emit %s: the engine chooses the hosts: expected --nnodes and no list of them", e.kind)
	case o.nodeRank >= 0 || o.masterAddr != "" || o.rendezvous != "":
		return verb.Usage("--emit %s: the engine says which host is which: expected no --node-rank, --master-addr or --rendezvous", e.kind)
	}
	if err := config.CheckSettings(a.settings); err != nil { // here, and not by every rank on a cluster
		return &verb.Error{Code: 2, Err: err}
	}
	j := manifest.Job{
		Kind: e.kind, Name: e.name, Image: e.image, Hosts: max(1, o.nnodes), Ranks: o.perNode, Run: cmp.Or(o.agent, "mscclpp-run"),
		Args: append([]string{program}, args[1:]...), Secret: e.secret, GPUs: e.gpus, MasterPort: o.masterPort,
	}
	if j.Ranks == "" {
		j.Ranks = strconv.Itoa(max(1, o.np))
	} else if o.np != 0 && j.Ranks != strconv.Itoa(o.np) {
		return verb.Usage("-n %d and --nproc-per-node %s: expected one of them", o.np, j.Ranks)
	}
	if self, err := os.Executable(); err == nil && program == self && len(args) > 1 {
		j.Args, j.Verb = args[1:], true // of mscclpp-run there
	}
	if j.Name == "" {
		j.Name = jobNameOf(programOf(j.Args))
	}
	if j.Secret == "" {
		j.Secret = j.Name + "-secret"
		if len(j.Secret) > 40 {
			j.Secret = "mscclpp-secret"
		}
	}
	j.Flags = o.manifestFlags(a.settings)
	var err error
	if j.Env, err = o.manifestEnv(); err != nil {
		return err
	}
	if err = manifest.Write(a.stdout, j); errors.Is(err, framework.ErrInvalid) {
		return &verb.Error{Code: 2, Err: err}
	}
	return err
}

// manifestFlags are those of this command that the hosts of the job need as well.
func (o *options) manifestFlags(settings []config.Setting) (flags []string) {
	if o.configFile != "" {
		flags = append(flags, "--config", o.configFile)
	}
	for _, x := range []struct {
		flag string
		on   bool
	}{{"--tee", o.tee}, {"--report-bindings", o.showBinding}, {"--no-stdin", o.noStdin}, {"--quiet", o.quiet}} {
		if x.on {
			flags = append(flags, x.flag)
		}
	}
	if o.dir != "" {
		flags = append(flags, "--chdir", o.dir)
	}
	for _, s := range settings {
		flags = append(flags, "--set", s.Key+"="+s.Value)
	}
	return flags
}

// manifestEnv has the variables of -x, with values: those of the hosts are others.
func (o *options) manifestEnv() (env []string, err error) {
	for _, x := range o.export {
		if !strings.Contains(x, "=") {
			value, ok := os.LookupEnv(x)
			if !ok {
				return nil, verb.Usage("-x %s: not set here: expected %s=VALUE", x, x)
			}
			x += "=" + value
		}
		env = append(env, x)
	}
	return env, nil
}
