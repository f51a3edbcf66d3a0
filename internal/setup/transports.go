package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
	"github.com/mscclpp-go/mscclpp/plugins"
	"github.com/mscclpp-go/mscclpp/transports"
)

// Opened is a transport of this process and how to end it.
type Opened struct {
	*comm.Transport
	shutdown func() error
}

// Close unloads the transport's kernels and ends its plugin.
func (o *Opened) Close() error {
	return errors.Join(o.CloseModules(), o.shutdown())
}

// openTransports starts all configured transports at the same time. After an error
// none is left. builtIn is the folder of the plugins that come with the program, and env what plugins get besides.
func openTransports(ctx context.Context, cfg *config.Effective, builtIn string, log *slog.Logger, env ...string) ([]*Opened, error) {
	for _, name := range cfg.Plugins.Embed {
		if !slices.Contains(cfg.Transports, name) {
			return nil, fmt.Errorf("%w: plugins.embed: %q is not in transports %v", framework.ErrInvalid, name, cfg.Transports)
		}
	}
	for i, name := range cfg.Transports {
		if slices.Contains(cfg.Transports[:i], name) {
			return nil, fmt.Errorf("%w: transports: %q is listed twice", framework.ErrInvalid, name)
		}
	}
	if err := optionsWithoutTransport(cfg); err != nil {
		return nil, err
	}
	all := make([]*Opened, len(cfg.Transports))
	failures := make([]error, len(all))
	var group sync.WaitGroup
	for i, name := range cfg.Transports {
		group.Go(func() {
			var err error
			all[i], err = openTransport(ctx, &cfg.Config, name, builtIn, log, env)
			failures[i] = withOrigin(cfg, name, err)
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		for _, o := range all {
			if o != nil {
				o.Close()
			}
		}
		return nil, err
	}
	return all, nil
}

// optionsWithoutTransport refuses options that no transport would read: most likely the
// name of the transport is misspelled. A variable of MSCCL++ stands for options of
// several transports, and counts for those that are listed; so do the program's defaults.
func optionsWithoutTransport(cfg *config.Effective) error {
	for _, name := range slices.Sorted(maps.Keys(cfg.Transport)) {
		if slices.Contains(cfg.Transports, name) {
			continue
		}
		var from []string
		for _, key := range slices.Sorted(maps.Keys(cfg.Transport[name])) {
			if origin := cfg.Origin("transport." + name + "." + key); !origin.Flat() && origin.Layer != "program" {
				from = append(from, fmt.Sprintf("%s: transport.%s.%s", origin, name, key))
			}
		}
		err := fmt.Errorf("%w: options for transport %q%s, which is not in the list transports %v", framework.ErrInvalid, name, suggest.Hint(suggest.Name(name, cfg.Transports)), cfg.Transports)
		switch {
		case len(from) > 0:
			return fmt.Errorf("%s: %w", strings.Join(from, ", "), err)
		case len(cfg.Transport[name]) == 0: // a section without keys
			return err
		}
	}
	return nil
}

// withOrigin says where the options come from that a transport refuses, which knows their
// values only: the one that the error carries, or all of them.
func withOrigin(cfg *config.Effective, name string, err error) error {
	if !errors.Is(err, framework.ErrInvalid) {
		return err
	}
	keys := optionKeys(nil, "", cfg.Transport[name])
	var option *framework.OptionError
	if errors.As(err, &option) {
		meant := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !covers(key, option.Key) && !covers(option.Key, key) })
		if len(meant) > 0 {
			keys = meant
		}
	}
	var from []string
	for _, key := range keys {
		full := "transport." + name + "." + key
		from = append(from, fmt.Sprintf("%s: %s", cfg.Origin(full), full))
	}
	if len(from) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(from, ", "), err)
}

// optionKeys adds the dotted keys of all options that have a value.
func optionKeys(out []string, prefix string, options map[string]any) []string {
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if table, ok := options[key].(map[string]any); ok {
			out = optionKeys(out, prefix+key+".", table)
		} else {
			out = append(out, prefix+key)
		}
	}
	return out
}

// covers reports whether an option is another, or a table or list that contains it.
func covers(key, other string) bool {
	rest, ok := strings.CutPrefix(other, key)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func openTransport(ctx context.Context, cfg *config.Config, name, builtIn string, log *slog.Logger, env []string) (*Opened, error) {
	if slices.Contains(cfg.Plugins.Embed, name) {
		return embed(ctx, name, cfg.Transport[name])
	}
	path, sum, err := Catalog(cfg, builtIn).Find(name)
	if err != nil {
		return nil, err
	}
	client, err := plugins.Open(ctx, plugins.Spec{
		Name: name, Path: path, SHA256: sum, Options: cfg.Transport[name],
		Layouts: collectives.Layouts(), StartTimeout: time.Duration(cfg.Plugins.StartTimeout), Log: log, Env: env,
	})
	if err != nil {
		return nil, err
	}
	return &Opened{
		Transport: &comm.Transport{
			Transport: client, Name: name, Description: client.Description(),
			Source: fmt.Sprintf("plugin %s (pid %d)", client.Path(), client.PID()),
			Gone:   client.Gone(), Cause: client.Err,
		},
		shutdown: client.Shutdown,
	}, nil
}

// embed runs a built-in transport in this process.
func embed(ctx context.Context, name string, options map[string]any) (*Opened, error) {
	t, err := transports.Embed(name, options)
	if err != nil {
		return nil, err
	}
	inner, err := comm.NewTransport(ctx, t, "embedded")
	if err != nil {
		return nil, err
	}
	return &Opened{Transport: inner, shutdown: func() error { return nil }}, nil
}

// Catalog returns the places where a configuration looks for plugins; builtIn is the last.
func Catalog(cfg *config.Config, builtIn string) plugins.Catalog {
	c := plugins.Catalog{Paths: make(map[string]plugins.Pinned), Dirs: cfg.Plugins.Dirs, BuiltIn: builtIn}
	for name, p := range cfg.Plugins.Path {
		c.Paths[name] = plugins.Pinned{Path: p.File, SHA256: p.SHA256}
	}
	return c
}

// inUse returns the transports as communicators take them.
func inUse(all []*Opened) []*comm.Transport {
	list := make([]*comm.Transport, len(all))
	for i, o := range all {
		list[i] = o.Transport
	}
	return list
}
