// Package notices writes THIRD_PARTY_NOTICES: the modules that go into the programs, with
// their licenses as the module cache has them.
package notices

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// File is where they are, from the root of the repository.
const File = "THIRD_PARTY_NOTICES"

// module is the output of go list for one module.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// Write writes the notices of the Go module whose root is dir.
func Write(w io.Writer, dir string) error {
	all, err := modules(dir)
	if err != nil {
		return err
	}
	root, err := run(dir, "env", "GOROOT")
	if err != nil {
		return err
	}
	all = append([]module{{Path: "The Go standard library and runtime", Dir: strings.TrimSpace(string(root))}}, all...)
	var b strings.Builder
	b.WriteString("Programs and plugins of this project contain the following software. `make generate` writes\nthis file from go.mod and the module cache.\n\n")
	texts := make([]string, len(all))
	for i, m := range all {
		if texts[i], err = licenses(m.Dir); err != nil {
			return fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
		}
		fmt.Fprintf(&b, "  %-12s  %s\n", kind(texts[i]), strings.TrimSpace(m.Path+" "+m.Version))
	}
	for i, m := range all {
		fmt.Fprintf(&b, "\n%s\n%s\n", strings.Repeat("=", 80), strings.TrimSpace(m.Path+" "+m.Version))
		if kind(texts[i]) == "MPL-2.0" {
			fmt.Fprintf(&b, "Its source, unchanged: https://proxy.golang.org/%s/@v/%s.zip\n", escaped(m.Path), m.Version)
		}
		fmt.Fprintf(&b, "%s\n\n%s", strings.Repeat("=", 80), texts[i])
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// modules lists those whose packages this module imports, but for tests.
func modules(dir string) ([]module, error) {
	out, err := run(dir, "list", "-deps", "-json=Module", "./...")
	if err != nil {
		return nil, err
	}
	var all []module
	for from := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		if err := from.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main && !slices.Contains(all, *p.Module) {
			all = append(all, *p.Module)
		}
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// run runs the go command.
func run(dir string, args ...string) ([]byte, error) {
	c := exec.Command("go", args...)
	c.Dir = dir
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out, nil
}

var licenseFile = onfirstuse.Regexp(`^(?i)(licen[cs]e|copying|notice|patents)(\.(md|txt))?$`)

// licenses are the texts that have to go with a module.
func licenses(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range entries {
		if e.IsDir() || !licenseFile().MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		if b.Len() > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n", e.Name())
		}
		for line := range strings.Lines(strings.Trim(string(text), "\r\n")) {
			b.WriteString(strings.TrimRight(line, " \t\r\n") + "\n")
		}
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("no license in %s: expected a file LICENSE", dir)
	}
	return b.String(), nil
}

// kind is the SPDX name of a license.
func kind(text string) string {
	for _, k := range []struct{ name, words string }{
		{"MPL-2.0", "Mozilla Public License"}, {"Apache-2.0", "Apache License"}, {"BSD-3-Clause", "endorse or promote products"},
		{"MIT", "Permission is hereby granted, free of charge"}, {"BSD-2-Clause", "Redistributions in binary form"},
	} {
		if strings.Contains(strings.Join(strings.Fields(text), " "), k.words) {
			return k.name
		}
	}
	return "see below"
}

// escaped is a module's path as proxies have it: "!a" for "A".
func escaped(path string) string {
	var b strings.Builder
	for _, r := range path {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('!')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
