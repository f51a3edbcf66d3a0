package dsl_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/dsl"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// collection is where plans of MSCCL++ lie beside the repository, on machines that have them.
const collection = "../../../shared/plans"

var update = flag.Bool("update", false, "write testdata/plans.sum anew")

func (s sample) plan(t *testing.T) *schema.Plan {
	t.Helper()
	opt := s.opt
	opt.Upstream = true
	if opt.Name = s.name; opt.Name == "" {
		opt.Name = path.Base(s.file)
	}
	p := dsl.New(s.of, opt)
	s.program(p)
	plan, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestUpstreamPlans compiles programs and compares their plans with those of MSCCL++ for the same programs, byte for
// byte: with the sums of testdata on every machine, and with the files where they lie beside the repository.
func TestUpstreamPlans(t *testing.T) {
	sums, written := recorded(t), ""
	for _, s := range samples() {
		t.Run(s.file, func(t *testing.T) {
			got := s.plan(t).Encode(2)
			sum := sha256.Sum256(got)
			text := hex.EncodeToString(sum[:])
			written += fmt.Sprintf("%s  %s\n", text, s.file)
			if want, have := collected(t, s.file); have && !bytes.Equal(got, want) {
				t.Fatalf("another plan than that of MSCCL++, from byte %d:\n%s", common(got, want), around(got, want))
			}
			if !*update && text != sums[s.file] {
				t.Fatalf("the plan has SHA-256 %s, expected %s", text, sums[s.file])
			}
		})
	}
	if *update {
		if err := os.WriteFile("testdata/plans.sum", []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func recorded(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/plans.sum")
	if err != nil && !*update {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 {
			sums[f[1]] = f[0]
		}
	}
	return sums
}

// collected returns a plan of the collection; false if there is no collection.
func collected(t *testing.T, file string) ([]byte, bool) {
	t.Helper()
	if _, err := os.Stat(collection); err != nil {
		return nil, false
	}
	b, err := os.ReadFile(filepath.Join(collection, file+".json"))
	if err != nil {
		packed, openErr := os.Open(filepath.Join(collection, file+".json.gz"))
		if openErr != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		z, gzErr := gzip.NewReader(packed)
		if gzErr != nil {
			t.Fatal(gzErr)
		}
		if b, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.TrimSpace(b), true
}

// common is the number of bytes in which both begin.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func around(got, want []byte) string {
	at := common(got, want)
	cut := func(b []byte) []byte { return b[max(at-300, 0):min(at+200, len(b))] }
	return fmt.Sprintf("got\n%s\n\nexpected\n%s", cut(got), cut(want))
}

// TestCollectionIsCovered checks that every plan of the collection that a program of MSCCL++ made has a program here.
func TestCollectionIsCovered(t *testing.T) {
	if _, err := os.Stat(collection); err != nil {
		t.Skip("this machine has no collection of plans beside the repository")
	}
	known := map[string]bool{}
	for _, s := range samples() {
		known[s.file] = true
	}
	for _, part := range []string{"single_node", "multi_node", "default_algos", "executor-tests", "unit_tests"} {
		err := filepath.WalkDir(filepath.Join(collection, part), func(file string, d os.DirEntry, err error) error {
			name, _ := strings.CutPrefix(file, collection+"/")
			name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".json")
			if err == nil && !d.IsDir() && !known[name] {
				t.Errorf("%s has no program", name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
