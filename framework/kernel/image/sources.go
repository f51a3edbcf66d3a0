package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

var includeLine = onfirstuse.Regexp(`(?m)^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]`)

// origin is what an image is made from.
type origin struct {
	source string // hash of all files
	layout string // device.Layout of those that define arguments
}

func (s *Spec) origin(f Family, headers string) (origin, error) {
	files, err := collect(s.dir, f.Sources, headers, s.folders()...)
	if err != nil {
		return origin{}, fmt.Errorf("family %q: %w", f.Name, err)
	}
	var marked []string
	for _, text := range files {
		if kernel.HasLayout(string(text)) {
			marked = append(marked, string(text))
		}
	}
	return origin{source: hashFiles(files), layout: kernel.LayoutOf(string(files["mscclpp/layout.h"]), marked...)}, nil
}

// HashSources is the hash of some sources in dir and of every header that they reach
// in the include folders. It needs no compiler: an include that is found in none of
// the folders belongs to the system and is left out, conditional ones are followed.
func HashSources(dir string, sources []string, headers string, include ...string) (string, error) {
	files, err := collect(dir, sources, headers, include...)
	if err != nil {
		return "", err
	}
	return hashFiles(files), nil
}

func hashFiles(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// collect reads the device headers, the sources and what they include, by the name
// under which it is hashed.
func collect(dir string, sources []string, headers string, include ...string) (map[string][]byte, error) {
	folders := append([]string{headers}, include...)
	files := map[string][]byte{}
	var walk func(name, path string) error
	walk = func(name, path string) error {
		if _, ok := files[name]; ok {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = data
		for _, m := range includeLine().FindAllSubmatch(data, -1) {
			quoted, target := m[1][0] == '"', string(m[2])
			if quoted {
				if p := filepath.Join(filepath.Dir(path), target); isFile(p) {
					if err := walk(filepath.ToSlash(filepath.Join(filepath.Dir(name), target)), p); err != nil {
						return err
					}
					continue
				}
			}
			for _, dir := range folders {
				if p := filepath.Join(dir, target); isFile(p) {
					if err := walk(filepath.ToSlash(filepath.Clean(target)), p); err != nil {
						return err
					}
					break
				}
			}
		}
		return nil
	}
	if err := walk("mscclpp/device.h", filepath.Join(headers, "mscclpp", "device.h")); err != nil {
		return nil, fmt.Errorf("%w: device headers: %w", framework.ErrInvalid, err)
	}
	for _, src := range sources {
		if err := walk(src, sourceIn(dir, src, include)); err != nil {
			return nil, fmt.Errorf("%w: source: %w", framework.ErrInvalid, err)
		}
	}
	return files, nil
}

// folders are the spec's include folders, resolved, and its own.
func (s *Spec) folders() []string {
	out := make([]string, 0, len(s.Include)+1)
	for _, dir := range s.Include {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(s.dir, dir)
		}
		out = append(out, dir)
	}
	return append(out, s.dir)
}

// sourceIn finds a source as the compiler does: beside the spec, else in the include
// folders, so that a spec can name one that is installed.
func sourceIn(dir, source string, folders []string) string {
	beside := filepath.Join(dir, source)
	if isFile(beside) {
		return beside
	}
	for _, folder := range folders {
		if path := filepath.Join(folder, source); isFile(path) {
			return path
		}
	}
	return beside // which the error names
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// FindHeaders returns the folder that holds mscclpp/device.h: that of an installed
// command, that of the source tree around the working directory, or that of the tree
// in whose bin the command is.
func FindHeaders() (string, error) {
	exe, _ := os.Executable()
	dir, _ := os.Getwd()
	return findHeaders(exe, dir)
}

// findHeaders is FindHeaders for a command and a working directory; "": not known.
func findHeaders(exe, dir string) (string, error) {
	inTree := filepath.Join("framework", "kernel", "include")
	var candidates []string
	beside := filepath.Dir(filepath.Dir(exe))
	if exe != "" {
		candidates = append(candidates, filepath.Join(beside, "include"))
	}
	for dir != "" {
		candidates = append(candidates, filepath.Join(dir, inTree))
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	if exe != "" {
		candidates = append(candidates, filepath.Join(beside, inTree))
	}
	for _, dir := range candidates {
		if isFile(filepath.Join(dir, "mscclpp", "device.h")) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: device headers: no mscclpp/device.h beside the command or in a source tree around the working directory; give their folder, there framework/kernel/include, with --include",
		framework.ErrUnavailable)
}
