package image

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// unused is how long an image stays in a store without being asked for.
const unused = 30 * 24 * time.Hour

// obtain takes the bytes of an image from the store, or makes them, and keeps them there. It looks there by the sources first,
// and then by what is left of them behind the preprocessor.
func (o *Options) obtain(ctx context.Context, c compiler, s *Spec, u unit, img *Image) ([]byte, error) {
	place := o.stored(u, img.Source, img, c)
	if data, built := fetch(place); built {
		return data, nil
	}
	second := ""
	if place != "" {
		if text := u.expanded(ctx, c, s, o.Headers); text != "" {
			second = o.stored(u, text, img, c)
		}
	}
	data, built := fetch(second)
	if !built {
		var err error
		if data, err = compile(ctx, c, s, u, o.Headers); err != nil {
			return nil, err
		}
		keep(second, data)
	}
	keep(place, data)
	return data, nil
}

// stored is the file of a store for an image: its name is made of all that decides the
// bytes. A folder that others can write to is no store.
func (o *Options) stored(u unit, sources string, img *Image, c compiler) string {
	about := u.making(sources, img, c)
	if o.Store == "" || about == nil || ownfile.Folder(o.Store) != nil {
		return ""
	}
	return filepath.Join(o.Store, hash([]byte(strings.Join(about, "\x00"))))
}

// fetch returns the bytes of an image that was built before, if they are whole.
func fetch(path string) ([]byte, bool) {
	if path == "" {
		return nil, false
	}
	text, err := os.ReadFile(path)
	if err != nil || len(text) < len(hash(nil)) {
		return nil, false
	}
	sum, data := text[:len(hash(nil))], text[len(hash(nil)):]
	if string(sum) != hash(data) {
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // it is in use
	return data, true
}

// keep adds an image to its store. That one cannot be kept is no reason to fail: it is
// built again.
func keep(path string, data []byte) {
	if path == "" {
		return
	}
	if err := atomicfile.Bytes(path, append([]byte(hash(data)), data...)); err != nil {
		return
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > unused && !strings.HasPrefix(e.Name(), ".") {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}
