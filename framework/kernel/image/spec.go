package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// Spec says what to build. It is read from a JSON file; paths in it are relative to
// that file.
type Spec struct {
	Name     string   `json:"name"`              // of the collection, in messages
	Include  []string `json:"include,omitempty"` // folders searched after the device headers, seen from the spec or absolute
	Families []Family `json:"families"`

	// Compression is of PTX: "gzip", which is the default and which any system expands, or "zstd", which takes less.
	Compression string `json:"compression,omitempty"`

	// OwnTargets are those of devices that mscclpp-go does not know.
	OwnTargets []OwnTarget `json:"own_targets,omitempty"`

	dir string // of the file
}

// Family is a set of kernels that are loaded together. It becomes one image for each
// target and type.
type Family struct {
	Name    string            `json:"name"`
	Sources []string          `json:"sources"`           // compiled as one unit, in this order; beside the spec or in include
	Types   []string          `json:"types,omitempty"`   // "f32", … or "all"; none: one image without MSCCLPP_TYPE
	Targets []string          `json:"targets,omitempty"` // limits the targets; none: every one
	Defines map[string]string `json:"defines,omitempty"`

	// Only limits the targets of some types further.
	Only map[string][]string `json:"only,omitempty"`

	MaxThreads int    `json:"max_threads,omitempty"` // of a block on GPUs; 0: 1024
	PTX        string `json:"ptx,omitempty"`         // least PTX version for sm_90, "82"; multimem needs it
}

var nameForm = onfirstuse.Regexp(`^[a-z0-9][a-z0-9_]*$`)

// ReadSpec reads and checks a spec. Unknown keys are errors.
func ReadSpec(file string) (*Spec, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("kernel spec: %w: %w", framework.ErrInvalid, err)
	}
	s := &Spec{dir: filepath.Dir(file)}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("kernel spec %s: %w: %w", file, framework.ErrInvalid, err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("kernel spec %s: %w", file, err)
	}
	return s, nil
}

func (s *Spec) validate() error {
	if len(s.Families) == 0 {
		return fmt.Errorf("%w: no families", framework.ErrInvalid)
	}
	if s.Compression != "" && s.Compression != "gzip" && s.Compression != "zstd" {
		return fmt.Errorf("%w: compression %q: expected gzip or zstd", framework.ErrInvalid, s.Compression)
	}
	if err := s.validateOwn(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, f := range s.Families {
		switch {
		case !nameForm().MatchString(f.Name):
			return fmt.Errorf("%w: family %q: expected lower-case letters, digits and _", framework.ErrInvalid, f.Name)
		case seen[f.Name]:
			return fmt.Errorf("%w: family %q is listed twice", framework.ErrInvalid, f.Name)
		case len(f.Sources) == 0:
			return fmt.Errorf("%w: family %q has no sources", framework.ErrInvalid, f.Name)
		case f.MaxThreads < 0 || f.MaxThreads > 1024:
			return fmt.Errorf("%w: family %q: max_threads %d: expected 1 to 1024", framework.ErrInvalid, f.Name, f.MaxThreads)
		}
		seen[f.Name] = true
		if _, err := f.types(); err != nil {
			return fmt.Errorf("family %q: %w", f.Name, err)
		}
		targets := slices.Clone(f.Targets)
		for typ, only := range f.Only {
			if !slices.Contains(f.Types, typ) {
				return fmt.Errorf("%w: family %q: only: type %q: expected one of its types %v", framework.ErrInvalid, f.Name, typ, f.Types)
			}
			targets = append(targets, only...)
		}
		for _, t := range targets {
			if _, err := s.FindTarget(t); err != nil {
				return fmt.Errorf("family %q: %w", f.Name, err)
			}
		}
	}
	return nil
}

var (
	archForm      = onfirstuse.Regexp(`^[a-z0-9][a-z0-9_-]*$`)
	extensionForm = onfirstuse.Regexp(`^\.[a-z0-9]+$`)
)

// validateOwn checks the targets that the spec brings.
func (s *Spec) validateOwn() error {
	var seen []string
	for _, t := range s.OwnTargets {
		_, err := FindTarget(t.Arch)
		switch {
		case !archForm().MatchString(t.Arch) || t.Arch == "cpu" || t.Arch == "gpu" || t.Arch == "native":
			return fmt.Errorf("%w: own target %q: expected lower-case letters, digits, _ and -, other than cpu, gpu and native", framework.ErrInvalid, t.Arch)
		case err == nil || slices.Contains(seen, t.Arch):
			return fmt.Errorf("%w: own target %q is there already", framework.ErrInvalid, t.Arch)
		case t.Compiler == "" || t.Language == "":
			return fmt.Errorf("%w: own target %q: expected a compiler and a language", framework.ErrInvalid, t.Arch)
		case !extensionForm().MatchString(t.Extension) || compressed(t.Extension) || t.Extension == ".json":
			return fmt.Errorf("%w: own target %q: extension %q: expected one such as .so", framework.ErrInvalid, t.Arch, t.Extension)
		}
		seen = append(seen, t.Arch)
	}
	return nil
}

// FindTarget returns a target that the spec brings, or one that everybody knows.
func (s *Spec) FindTarget(arch string) (Target, error) {
	for i := range s.OwnTargets {
		if t := &s.OwnTargets[i]; t.Arch == arch {
			return Target{Arch: arch, Kind: Own, own: t}, nil
		}
	}
	return FindTarget(arch)
}

// ParseTargets is the function of this name, which knows the targets of the spec as well.
func (s *Spec) ParseTargets(list string) ([]Target, error) {
	var out []Target
	for name := range strings.SplitSeq(list, ",") {
		if t, err := s.FindTarget(name); err == nil {
			out = append(out, t)
			continue
		}
		more, err := ParseTargets(name)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// types returns the element types to compile for; one empty entry for none.
func (f *Family) types() ([]string, error) {
	if len(f.Types) == 0 {
		return []string{""}, nil
	}
	if len(f.Types) == 1 && f.Types[0] == "all" {
		var all []string
		for t := kernel.DataType(0); t < kernel.DataTypes; t++ {
			all = append(all, t.String())
		}
		return all, nil
	}
	for i, name := range f.Types {
		t, err := kernel.ParseDataType(name)
		if err != nil {
			return nil, err
		}
		if t.String() != name || slices.Contains(f.Types[:i], name) {
			return nil, fmt.Errorf("%w: type %q: expected each type once, by its short name", framework.ErrInvalid, name)
		}
	}
	return f.Types, nil
}

// unit is one image to be made.
type unit struct {
	family Family
	typ    string
	target Target
	packed string // ending of compressed PTX
}

func (u unit) id() string {
	id := u.family.Name
	if u.typ != "" {
		id += "-" + u.typ
	}
	return id + "-" + u.target.Arch
}

// file is the image's. GPU images are kept in version control, compressed.
func (u unit) file() string {
	switch u.target.Kind {
	case PTX:
		return u.id() + ".ptx" + u.packed
	case HSA:
		return u.id() + ".co" + zstded
	case Own:
		return u.id() + u.target.own.Extension
	}
	return u.id() + ".so"
}

// units lists the images of the spec for some targets, in the order of the spec.
func (s *Spec) units(targets []Target) []unit {
	var units []unit
	packed := gzipped
	if s.Compression == "zstd" {
		packed = zstded
	}
	for _, target := range targets {
		for _, f := range s.Families {
			if len(f.Targets) > 0 && !slices.Contains(f.Targets, target.Arch) {
				continue
			}
			types, _ := f.types() // validated
			for _, typ := range types {
				if only := f.Only[typ]; len(only) > 0 && !slices.Contains(only, target.Arch) {
					continue
				}
				units = append(units, unit{family: f, typ: typ, target: target, packed: packed})
			}
		}
	}
	return units
}
