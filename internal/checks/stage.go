package checks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Stage is one thing that has to hold before a change is taken.
type Stage struct {
	Name    string        `yaml:"name"`
	Run     string        `yaml:"run"`     // for bash, in the root of the tree
	Seconds int           `yaml:"seconds"` // that it takes on two idle processors with warm caches
	Bound   time.Duration `yaml:"bound"`   // it has failed when it takes longer
	Lane    string        `yaml:"lane"`    // stages of a lane run one after the other; of lane last, when all others are done
	After   []string      `yaml:"after"`   // stages further up that have to end first, whatever their outcome
	Inputs  *Inputs       `yaml:"inputs"`  // all that decides the outcome; nil: the stage always runs
}

// Inputs are what decides the outcome of a stage, beside its own definition.
type Inputs struct {
	Packages []string `yaml:"packages"` // Go packages, with all packages of this module that they or their tests import
	Files    []string `yaml:"files"`    // patterns; one that ends in a slash is a folder with all below it
	Tools    []string `yaml:"tools"`    // commands whose output names a version
}

// The lane that begins when the others have ended: what measures time runs there, alone.
const last = "last"

// Read reads the list of stages.
func Read(path string) ([]Stage, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("stages: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var list []Stage
	if err := d.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("stages: %s: %w", path, err)
	}
	var seen []string
	for _, s := range list {
		switch {
		case s.Name == "" || slices.Contains(seen, s.Name):
			return nil, fmt.Errorf("stages: %s: name %q: expected one that no other stage has", path, s.Name)
		case s.Run == "" || s.Seconds <= 0 || s.Bound <= 0 || s.Lane == "":
			return nil, fmt.Errorf("stages: %s: stage %s: expected run, seconds, bound and lane", path, s.Name)
		}
		for _, a := range s.After {
			if !slices.Contains(seen, a) {
				return nil, fmt.Errorf("stages: %s: stage %s: after %q: expected a stage further up", path, s.Name, a)
			}
			if i := slices.IndexFunc(list, func(x Stage) bool { return x.Name == a }); list[i].Lane == last && s.Lane != last {
				return nil, fmt.Errorf("stages: %s: stage %s: after %q: expected none of lane %s, which begins when the others have ended", path, s.Name, a, last)
			}
		}
		seen = append(seen, s.Name)
	}
	return list, nil
}

// Select returns the stages with these names, or all of them if there are none.
func Select(list []Stage, names []string) ([]Stage, error) {
	if len(names) == 0 {
		return list, nil
	}
	var out []Stage
	for _, s := range list {
		if slices.Contains(names, s.Name) {
			out = append(out, s)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(out, func(s Stage) bool { return s.Name == n }) {
			var have []string
			for _, s := range list {
				have = append(have, s.Name)
			}
			return nil, fmt.Errorf("stages: %q: expected one of %v", n, have)
		}
	}
	return out, nil
}
