package machinecode

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Library is the machine code that a device may use. Its methods may be called
// concurrently. The zero value has none.
type Library struct {
	mu         sync.Mutex
	containers []*container // the best first
	bad        map[string]bool
}

// Open reads the containers that fit a GPU of a compute capability; others are passed
// over by their names. The library has what could be read: the error says what could not.
func Open(files []string, major, minor int) (*Library, error) {
	l := &Library{bad: map[string]bool{}}
	var failures []error
	for _, path := range files {
		a, err := parseArch(chipOf(filepath.Base(path)))
		if err != nil || !a.fits(major, minor) {
			continue
		}
		c, err := open(path)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if c.arch != a {
			failures = append(failures, fmt.Errorf("%w: machine code %s: its manifest says %s, expected the chip of its name", framework.ErrInvalid, path, c.manifest.Chip))
			continue
		}
		l.containers = append(l.containers, c)
	}
	// The newest chip first. Where a chip has both, what is for it alone comes first.
	slices.SortStableFunc(l.containers, func(x, y *container) int {
		if d := y.arch.minor - x.arch.minor; d != 0 {
			return d
		}
		return y.arch.rank() - x.arch.rank()
	})
	return l, errors.Join(failures...)
}

func (a arch) rank() int {
	switch {
	case a.exact:
		return 2
	case a.family:
		return 1
	}
	return 0
}

// Found is machine code that a library has for an image.
type Found struct {
	ID   string // of the image
	Chip string // that it was assembled for
	Path string // of the container

	SHA256 string // of the bytes
	Bytes  []byte
}

// Empty reports whether the library has no machine code at all.
func (l *Library) Empty() bool { return l == nil || len(l.containers) == 0 }

// Find returns the best machine code of the image with this sha256, nil if there is none.
// Damaged code is an error once, and passed over from then on.
func (l *Library) Find(ptx string) (*Found, error) {
	if l.Empty() || ptx == "" {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.containers {
		for i := range c.manifest.Images {
			entry := &c.manifest.Images[i]
			key := c.path + "\x00" + ptx
			if entry.PTX != ptx || l.bad[key] {
				continue
			}
			data, err := c.code(entry)
			if err != nil {
				l.bad[key] = true
				return nil, fmt.Errorf("machine code %s: %w", c.path, err)
			}
			return &Found{ID: entry.ID, Chip: c.manifest.Chip, Path: c.path, SHA256: entry.SHA256, Bytes: data}, nil
		}
	}
	return nil, nil
}

// Refuse takes machine code out that the driver has refused.
func (l *Library) Refuse(f *Found, ptx string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad[f.Path+"\x00"+ptx] = true
}

// Covers counts, by chip, of how many of the images each container has machine code. It is
// for people.
func Covers(files []string, images []string) (map[string]int, error) {
	out := map[string]int{}
	var failures []error
	for _, path := range files {
		c, err := open(path)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, sha := range images {
			if slices.ContainsFunc(c.manifest.Images, func(e Code) bool { return e.PTX == sha }) {
				out[c.manifest.Chip]++
			}
		}
	}
	return out, errors.Join(failures...)
}
