package checks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Proofs is a folder with a file for each set of inputs that has passed.
type Proofs struct {
	Dir  string // "": nothing is proven, and nothing is kept
	Root string // of the tree
	Host func() ([]byte, error)
}

// kept is how many proofs a stage has.
const kept = 8

// key is the sum of all that decides the outcome of a stage.
func (p Proofs) key(ctx context.Context, s Stage) (string, error) {
	h := sha256.New()
	definition, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("inputs of %s: %w", s.Name, err)
	}
	add(h, "stage", definition)
	host, err := p.Host()
	if err != nil {
		return "", fmt.Errorf("inputs of %s: host: %w", s.Name, err)
	}
	add(h, "host", host)
	for _, t := range s.Inputs.Tools {
		c := exec.CommandContext(ctx, "bash", "-c", t)
		c.Dir = p.Root
		out, err := c.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("inputs of %s: %s: %w", s.Name, t, err)
		}
		add(h, "tool "+t, out)
	}
	files, err := p.files(ctx, s.Inputs)
	if err != nil {
		return "", fmt.Errorf("inputs of %s: %w", s.Name, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(p.Root, f))
		if err != nil {
			return "", fmt.Errorf("inputs of %s: %w", s.Name, err)
		}
		add(h, "file "+f, data)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// add writes a part with its length, so that no two lists of parts are the same bytes.
func add(h hash.Hash, name string, data []byte) {
	fmt.Fprintf(h, "%q %d\n", name, len(data))
	h.Write(data)
}

// files lists the inputs that are files, sorted, as paths from the root.
func (p Proofs) files(ctx context.Context, in *Inputs) ([]string, error) {
	set := map[string]bool{}
	for _, pattern := range in.Files {
		matches, err := filepath.Glob(filepath.Join(p.Root, strings.TrimSuffix(pattern, "/")))
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		if len(matches) == 0 {
			return nil, fmt.Errorf("pattern %q matches no file", pattern)
		}
		for _, m := range matches {
			if err := p.walk(m, set, func(string) bool { return true }); err != nil {
				return nil, err
			}
		}
	}
	if len(in.Packages) > 0 {
		if err := p.packages(ctx, in.Packages, set); err != nil {
			return nil, err
		}
	}
	var out []string
	for f := range set {
		out = append(out, f)
	}
	slices.Sort(out)
	return out, nil
}

// walk adds a file, or the files below a folder that are wanted.
func (p Proofs) walk(at string, set map[string]bool, wanted func(path string) bool) error {
	return filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !d.Type().IsRegular() || !wanted(path) {
			return err
		}
		rel, err := filepath.Rel(p.Root, path)
		set[filepath.ToSlash(rel)] = true
		return err
	})
}

// packages adds the sources of packages of this module: the folders of those that are
// named, with tests and what these read, and of the others what a program is built of,
// with files below them that they embed.
func (p Proofs) packages(ctx context.Context, patterns []string, set map[string]bool) error {
	named, err := p.list(ctx, patterns)
	if err != nil {
		return err
	}
	all, err := p.list(ctx, patterns, "-deps", "-test")
	if err != nil {
		return err
	}
	add := func(dir, name string) error {
		rel, err := filepath.Rel(p.Root, filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("sources: %w", err)
		}
		set[filepath.ToSlash(rel)] = true
		return nil
	}
	for dir, embedded := range all {
		if _, ok := named[dir]; ok {
			if err := p.walk(dir, set, func(string) bool { return true }); err != nil {
				return err
			}
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("sources: %w", err)
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			if err := add(dir, e.Name()); err != nil {
				return err
			}
		}
		for _, name := range embedded {
			if err := add(dir, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// list asks go for packages, and returns those of this module: their folders, and which
// files each embeds.
func (p Proofs) list(ctx context.Context, patterns []string, args ...string) (map[string][]string, error) {
	c := exec.CommandContext(ctx, "go", append(append([]string{"list", "-json=Dir,EmbedFiles,Module"}, args...), patterns...)...)
	c.Dir = p.Root
	var why bytes.Buffer
	c.Stderr = &why
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(why.Bytes()))
	}
	dirs := map[string][]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var one struct {
			Dir        string
			EmbedFiles []string
			Module     *struct{ Main bool }
		}
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if one.Module != nil && one.Module.Main && one.Dir != "" {
			dirs[one.Dir] = append(dirs[one.Dir], one.EmbedFiles...)
		}
	}
}

func (p Proofs) path(s Stage, key string) string {
	return filepath.Join(p.Dir, s.Name+"-"+key[:32])
}

// proven reports when the same inputs passed, if they did, and their key.
func (p Proofs) proven(ctx context.Context, s Stage) (when time.Time, key string, err error) {
	if s.Inputs == nil {
		return time.Time{}, "", nil
	}
	if key, err = p.key(ctx, s); err != nil || p.Dir == "" {
		return time.Time{}, "", err
	}
	if info, err := os.Lstat(p.path(s, key)); err == nil && info.Mode().IsRegular() {
		return info.ModTime(), key, nil
	}
	return time.Time{}, key, nil
}

// keep notes that inputs have passed.
func (p Proofs) keep(s Stage, key string) error {
	if p.Dir == "" || key == "" {
		return nil
	}
	if err := ownfile.Folder(p.Dir); err != nil {
		return fmt.Errorf("proof of %s: %w", s.Name, err)
	}
	f, err := ownfile.Open(p.path(s, key), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("proof of %s: %w", s.Name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("proof of %s: %w", s.Name, err)
	}
	old, err := filepath.Glob(filepath.Join(p.Dir, s.Name+"-*"))
	if err != nil {
		return fmt.Errorf("proofs of %s: %w", s.Name, err)
	}
	if len(old) <= kept {
		return nil
	}
	age := func(path string) time.Time {
		info, err := os.Lstat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(old, func(a, b string) int { return age(a).Compare(age(b)) })
	for _, path := range old[:len(old)-kept] {
		_ = os.Remove(path)
	}
	return nil
}
