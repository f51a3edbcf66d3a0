package main

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch"
)

// app is one run of the program.
type app struct {
	stdout, stderr io.Writer
	opts           options
	flags          *pflag.FlagSet // as they were parsed into opts
	settings       []config.Setting
	engine         launch.Engine
	effective      *config.Effective
	root           fs.FS // of the file system in which devices are counted; nil = this machine's
}

// config loads the configuration once, and prints its warnings.
func (a *app) config() (*config.Effective, error) {
	if a.effective != nil {
		return a.effective, nil
	}
	job := a.opts.configFile
	if job != "" {
		abs, err := filepath.Abs(job)
		if err != nil {
			return nil, err
		}
		job = abs
		a.opts.configFile = abs
	}
	e, err := config.Load(config.Standard(job, a.settings))
	if err != nil {
		return nil, err
	}
	// Ranks see the same environment: one process speaks for all.
	if a.engine.Role != launch.RoleRank || a.engine.LocalRank == 0 && a.engine.Name != "mscclpp-run" {
		for _, w := range e.Warnings {
			fmt.Fprintln(a.stderr, "mscclpp-run: warning:", w)
		}
	}
	a.effective = e
	return e, nil
}

// env is what verbs see of the launcher.
func (a *app) env() *verb.Env {
	return &verb.Env{
		Stdout: a.stdout, Stderr: a.stderr, Config: a.config,
		Asked: func() verb.Asked {
			o := &a.opts
			return verb.Asked{
				Ranks:    o.listsHosts() || o.np != 0 || o.perNode != "" || o.nnodes != 0,
				Settings: a.settings, ConfigFile: o.configFile,
			}
		},
	}
}
