package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
)

var includeLine = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]`)

func sourceHash(s *Spec, f Family, headers string) (string, error) {
	sum, err := HashSources(s.dir, f.Sources, headers, s.folders()...)
	if err != nil {
		err = fmt.Errorf("family %q: %w", f.Name, err)
	}
	return sum, err
}

// HashSources is the hash of some sources in dir and of every header that they reach
// in the include folders. It needs no compiler: an include that is found in none of
// the folders belongs to the system and is left out, conditional ones are followed.
func HashSources(dir string, sources []string, headers string, include ...string) (string, error) {
	folders := append([]string{headers}, include...)
	files := map[string][]byte{} // by the name under which it is hashed
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
		for _, m := range includeLine.FindAllSubmatch(data, -1) {
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
		return "", fmt.Errorf("%w: device headers: %w", framework.ErrInvalid, err)
	}
	for _, src := range sources {
		if err := walk(src, filepath.Join(dir, src)); err != nil {
			return "", fmt.Errorf("%w: source: %w", framework.ErrInvalid, err)
		}
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%s %d\n", name, len(files[name]))
		h.Write(files[name])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// folders are the spec's include folders, resolved, and its own.
func (s *Spec) folders() []string {
	out := make([]string, 0, len(s.Include)+1)
	for _, dir := range s.Include {
		out = append(out, filepath.Join(s.dir, dir))
	}
	return append(out, s.dir)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// FindHeaders returns the folder that holds mscclpp/device.h: that of an installed
// command, or that of the source tree around the working directory.
func FindHeaders() (string, error) {
	var candidates []string
	if exe, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(exe), "..", "include"))
	}
	if dir, err := os.Getwd(); err == nil {
		for {
			candidates = append(candidates, filepath.Join(dir, "framework", "device", "include"))
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	for _, dir := range candidates {
		if isFile(filepath.Join(dir, "mscclpp", "device.h")) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%w: device headers: no mscclpp/device.h beside the installed command or in a source tree around the working directory; give their folder with --include",
		framework.ErrUnavailable)
}
