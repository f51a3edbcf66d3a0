package image

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// unused is how long an image stays in a store that nobody has asked for it.
const unused = 30 * 24 * time.Hour

// stored is the file of a store for an image: its name is made of all that decides the
// bytes. A folder that others can write to is no store.
func (o *Options) stored(u unit, img *Image, c compiler) string {
	about := u.making(img, c)
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
