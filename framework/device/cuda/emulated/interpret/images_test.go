package interpret_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

func start(t testing.TB) *interpret.Session {
	t.Helper()
	s, err := interpret.Start(t.Context(), emulated.BuildInterpreter(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// root is the top of the source tree.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above")
	return ""
}

// Images of all targets, whoever they are for, are decoded without an unknown word.
func TestEveryCommittedImageIsDecoded(t *testing.T) {
	s := start(t)
	var images, instructions, entries int
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "manifest.json" || filepath.Base(filepath.Dir(path)) != "image" {
			return err
		}
		set, err := image.Open(os.DirFS(filepath.Dir(path)))
		if err != nil {
			return err
		}
		for _, info := range set.Infos() {
			if !strings.HasPrefix(info.Arch, "sm_") {
				continue
			}
			text, err := set.Read(info.ID)
			if err != nil {
				return err
			}
			n, e, err := s.Image(info.ID, text)
			if err != nil {
				t.Error(err)
			}
			images++
			instructions += n
			entries += e
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d images, %d entries, %d instructions", images, entries, instructions)
	if images < 157 || entries < 552 {
		t.Errorf("%d images with %d entries, expected all: 157 with 552, and what came later", images, entries)
	}
}
