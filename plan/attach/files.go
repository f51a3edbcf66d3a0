package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/exec"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

// Source is where plans are: a file, or a folder of them.
type Source struct {
	Path       string
	Unverified bool // plans need not be right
	Packets    int  // bytes of each: 8 or 16; 0: 16
}

// Loaded is a plan of a source.
type Loaded struct {
	*schema.Plan
	Options
}

// each calls f for the plans of all sources, those of a folder by name.
func each(sources []Source, f func(s Source, file string, p *schema.Plan) error) error {
	for _, s := range sources {
		files, err := s.files()
		if err != nil {
			return err
		}
		for _, file := range files {
			p, err := schema.ReadFile(file)
			if err == nil {
				err = f(s, file, p)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Read reads the plans of all sources, those of a folder by name. A plan that its check does not call right is an error,
// unless its source says otherwise.
func Read(sources []Source) (plans []Loaded, err error) {
	names := map[string]string{}
	err = each(sources, func(s Source, file string, p *schema.Plan) error {
		if other := names[p.Name]; other != "" {
			return fmt.Errorf("%w: %s and %s: two plans have the name %s", framework.ErrInvalid, other, file, p.Name)
		}
		names[p.Name] = file
		if !s.Unverified {
			if got := verify.Known(p); got.Verdict != verify.Right {
				return fmt.Errorf("%w: %s: the plan is not right, but %s: %s; expected a right one, or `unverified: true`", framework.ErrInvalid, file, got.Verdict, got.Reason)
			}
		}
		plans = append(plans, Loaded{p, Options{Packet: exec.Packet(s.Packets)}})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return plans, nil
}

// Names says which source has the plan of a name. It checks no plan.
func Names(sources []Source) (map[string]Source, error) {
	names := map[string]Source{}
	err := each(sources, func(s Source, file string, p *schema.Plan) error {
		names[p.Name] = Source{Path: file, Unverified: s.Unverified, Packets: s.Packets}
		return nil
	})
	return names, err
}

func (s Source) files() ([]string, error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: plans: %w", framework.ErrInvalid, err)
	}
	if !info.IsDir() {
		return []string{s.Path}, nil
	}
	entries, err := os.ReadDir(s.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: plans: %w", framework.ErrInvalid, err)
	}
	var files []string
	for _, e := range entries {
		if n := e.Name(); !e.IsDir() && (strings.HasSuffix(n, ".json") || strings.HasSuffix(n, ".json.gz")) {
			files = append(files, filepath.Join(s.Path, n))
		}
	}
	return files, nil
}
