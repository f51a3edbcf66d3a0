package emulated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Derived is what is made over the core of this driver: libraries whose sources call the driver's functions, which they do not
// export. They are equal but for what they export.
type Derived struct {
	Sources   fs.FS             // C++
	Libraries map[string]string // names of files, as "libamdhip64.so.6", and the linker's version script of each
}

// Derive returns the folder of these libraries, in the user's cache. They are built there unless they are up to date.
// ErrUnavailable: there is no C++ compiler.
func Derive(ctx context.Context, d Derived) (dir string, err error) {
	cxx, err := compiler()
	if err != nil {
		return "", err
	}
	cache, err := folder("derived")
	if err != nil {
		return "", err
	}
	sum, err := d.digest(cxx)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, sum)
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return dir, nil
	}
	if err := d.build(ctx, cxx, dir); err != nil {
		return "", err
	}
	return dir, os.WriteFile(complete, nil, 0o644)
}

func (d *Derived) digest(cxx string) (string, error) {
	core, err := digestOf(cxx, append(slices.Clone(flags), objectFlags...), "driver", "ptx")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, core, d.Libraries)
	err = fs.WalkDir(d.Sources, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(d.Sources, path)
		fmt.Fprintln(h, path, len(data))
		h.Write(data)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("emulated driver: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func (d *Derived) build(ctx context.Context, cxx, dir string) error {
	var core []string
	for _, sources := range []string{"ptx", "driver"} {
		objects, err := objectsOf(ctx, cxx, sources)
		if err != nil {
			return err
		}
		core = append(core, objects...)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("emulated driver: %w", err)
	}
	return withSources(func(src string) error {
		own := filepath.Join(src, "derived")
		if err := os.CopyFS(own, d.Sources); err != nil {
			return fmt.Errorf("emulated driver: %w", err)
		}
		if err := compileObjects(ctx, cxx, src, own, own); err != nil {
			return err
		}
		objects, err := filepath.Glob(filepath.Join(own, "*.o"))
		if err != nil {
			return fmt.Errorf("emulated driver: %w", err)
		}
		objects = append(objects, core...)
		for name, script := range d.Libraries {
			args := append(slices.Clone(objects), "-shared", "-pthread", "-Wl,-z,defs", "-Wl,--version-script=derived/"+script, "-Wl,-soname,"+name, "-ldl")
			if err := link(ctx, cxx, src, filepath.Join(dir, name), args); err != nil {
				return err
			}
		}
		return nil
	})
}
