package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/mscclpp-go/mscclpp/framework"
)

// delimiter separates levels inside koanf. It is not a dot, so that names such as
// eth0.100 stay whole.
const delimiter = "/"

// Sources says what is loaded. Its zero value loads the defaults alone; Standard
// fills it for a program.
type Sources struct {
	Defaults   []Setting // of the program: all that users set counts before them
	SystemBase string    // path without extension; "" none
	UserBase   string
	Job        string   // path with extension; "" none. Must exist.
	Environ    []string // as of os.Environ
	Flags      []Setting
}

// Standard returns the sources of a program on this machine: /etc/mscclpp/config,
// mscclpp/config in the user's configuration folder, the job file or the one that
// MSCCLPP_CONFIG names, the environment and the flags.
func Standard(job string, flags []Setting) Sources {
	s := Sources{SystemBase: "/etc/mscclpp/config", Job: job, Environ: os.Environ(), Flags: flags}
	if dir, err := os.UserConfigDir(); err == nil {
		s.UserBase = filepath.Join(dir, "mscclpp", "config")
	}
	if s.Job == "" {
		s.Job = os.Getenv("MSCCLPP_CONFIG")
	}
	return s
}

// Load composes the layers. All mistakes of a layer are reported together, wrapped
// in framework.ErrInvalid; a layer with mistakes ends the loading.
func Load(s Sources) (*Effective, error) {
	l := loader{merged: koanf.New(delimiter), eff: &Effective{origins: map[string]Origin{}}}
	if err := l.merge(treeOf(reflect.ValueOf(Default()))); err != nil {
		return nil, err
	}
	if err := l.settings("program", s.Defaults); err != nil {
		return nil, err
	}
	for _, f := range []struct{ layer, base, path string }{
		{"system", s.SystemBase, ""}, {"user", s.UserBase, ""}, {"job", "", s.Job},
	} {
		if err := l.file(f.layer, f.base, f.path); err != nil {
			return nil, err
		}
	}
	if err := l.environment(s.Environ); err != nil {
		return nil, err
	}
	if err := l.settings("flag", s.Flags); err != nil {
		return nil, err
	}
	return l.finish()
}

type loader struct {
	merged *koanf.Koanf
	eff    *Effective
}

func (l *loader) merge(tree map[string]any) error {
	return l.merged.Load(confmap.Provider(tree, ""), nil)
}

// add checks one layer and puts it on top of those before. origin returns where a
// path of the layer stands.
func (l *loader) add(tree map[string]any, text bool, origin func(path []string) Origin) error {
	c := checker{text: text}
	typed, _ := c.section(schema(), tree, nil).(map[string]any)
	if len(c.found) > 0 {
		var all []error
		for _, p := range c.found {
			all = append(all, fmt.Errorf("%s: %s: %w", origin(p.path), p.text, framework.ErrInvalid))
		}
		return errors.Join(all...)
	}
	for _, path := range c.leafs {
		l.eff.origins[dotted(path)] = origin(path)
	}
	return l.merge(typed)
}

func (l *loader) file(layer, base, path string) error {
	if base != "" {
		var err error
		if path, err = findFile(base); err != nil {
			return fmt.Errorf("%s configuration: %w", layer, err)
		}
	}
	if path == "" {
		return nil
	}
	tree, where, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s configuration %s: no such file: %w", layer, path, framework.ErrInvalid)
	} else if err != nil {
		return fmt.Errorf("%s configuration: %w", layer, err)
	}
	return l.add(tree, false, func(p []string) Origin {
		return Origin{Layer: layer, Source: path, Line: where.of(p)}
	})
}

func (l *loader) environment(environ []string) error {
	tree, from, warnings, err := readEnviron(environ)
	if err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(warnings)) {
		l.eff.Warned = append(l.eff.Warned, name)
		l.eff.Warnings = append(l.eff.Warnings, warnings[name]...)
	}
	flags := flagsOf(environ)
	return l.add(tree, true, func(p []string) Origin {
		for ; len(p) > 0; p = p[:len(p)-1] {
			if name := from[dotted(p)]; name != "" {
				if flag := flags[name]; flag != "" {
					name = flag + " (" + name + ")" // both: a script between may have set it again
				}
				return Origin{Layer: "environment", Source: name}
			}
		}
		return Origin{Layer: "environment"}
	})
}

// CheckSettings looks for mistakes in settings that are for another process's configuration:
// unknown keys, and values that their keys do not take. Load of that process checks them
// beside other settings. Errors wrap framework.ErrInvalid.
func CheckSettings(settings []Setting) error {
	l := loader{merged: koanf.New(delimiter), eff: &Effective{origins: map[string]Origin{}}}
	return l.settings("flag", settings)
}

// settings adds each flag, or default of the program, as a layer of its own: a later one wins, and a
// mistake names the flag that made it.
func (l *loader) settings(layer string, settings []Setting) error {
	for _, s := range settings {
		path := strings.Split(s.Key, ".")
		if slices.Contains(path, "") {
			return fmt.Errorf("%s: key %q: expected names separated by single dots: %w", s.Flag, s.Key, framework.ErrInvalid)
		}
		tree := map[string]any{path[len(path)-1]: s.Value}
		for i := len(path) - 2; i >= 0; i-- {
			tree = map[string]any{path[i]: tree}
		}
		origin := Origin{Layer: layer, Source: s.Flag}
		if err := l.add(tree, true, func([]string) Origin { return origin }); err != nil {
			return err
		}
	}
	return nil
}

// finish decodes the merged tree. Layers were checked before, so an error here is
// one of this package.
func (l *loader) finish() (*Effective, error) {
	err := l.merged.UnmarshalWithConf("", &l.eff.Config, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result:      &l.eff.Config,
		TagName:     "config",
		ErrorUnused: true,
		MatchName:   func(key, field string) bool { return key == field },
	}})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return l.eff, l.eff.validate()
}

// treeOf turns structs into the tree that a file with all keys would give.
func treeOf(v reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Tag.Get("config"), v.Field(i)
		switch {
		case f.Kind() == reflect.Struct:
			out[name] = treeOf(f)
		case f.Kind() == reflect.Map:
			section := map[string]any{}
			for _, k := range f.MapKeys() {
				if e := f.MapIndex(k); e.Kind() == reflect.Struct {
					section[k.String()] = treeOf(e)
				} else {
					section[k.String()] = e.Interface()
				}
			}
			out[name] = section
		default:
			out[name] = f.Interface()
		}
	}
	return out
}
