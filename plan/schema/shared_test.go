package schema_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// collection is where plans for development lie beside the repository, on machines that have them.
const collection = "../../../shared/plans"

// collected returns the files of the collection.
func collected(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(collection, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, ".json") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Skip("this machine has no collection of plans beside the repository")
	}
	return files
}

// TestCollection reads all plans of the collection: those of MSCCL++ give the same bytes when they are written again,
// and of our own the broken ones are refused with a place.
func TestCollection(t *testing.T) {
	for _, file := range collected(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := schema.ReadFile(file)
			if strings.HasPrefix(filepath.Base(file), "bad_") {
				var wrong *schema.Error
				if !errors.As(err, &wrong) || !errors.Is(err, framework.ErrInvalid) || wrong.Line == 0 {
					t.Fatalf("got %v, expected an error of class ErrInvalid with a line", err)
				}
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := text(t, file); !strings.Contains(file, "/own/") && !bytes.Equal(p.Encode(2), bytes.TrimRight(want, "\n")) {
				t.Fatal("the plan is another one when it is written again")
			}
		})
	}
}

// text returns a file as it is uncompressed.
func text(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(file, ".gz") {
		return data
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if data, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return data
}
