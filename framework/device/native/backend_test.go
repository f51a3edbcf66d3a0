package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// compiled makes a shared object of testdata/table.c.
func compiled(t *testing.T, defines ...string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip("needs a C compiler")
	}
	out := filepath.Join(t.TempDir(), "table.so")
	args := append([]string{"-std=gnu11", "-fPIC", "-shared", "-Iinclude", "-o", out, "testdata/table.c"}, defines...)
	if text, err := exec.CommandContext(t.Context(), cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, text)
	}
	return out
}

func loadFile(path string) (*Backend, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Load(f, path)
}

// Every fault of a table is named when it is loaded.
func TestTablesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		define string
		want   string
		class  error
	}{
		"a small table":         {"-DSIZE=16", "a size of 16 bytes: expected about", framework.ErrInvalid},
		"a table of odd size":   {"-DSIZE=sizeof(mscclpp_device_backend)+1", "a size of", framework.ErrInvalid},
		"a huge table":          {"-DSIZE=1u<<30", "a size of 1073741824 bytes", framework.ErrInvalid},
		"another version":       {"-DVERSION=7", "version 7: expected 1", framework.ErrInvalid},
		"no launch":             {"-DLACKS=launch", "lacks launch", framework.ErrInvalid},
		"no export":             {"-DLACKS=export_share", "lacks export_share", framework.ErrInvalid},
		"no words for errors":   {"-DLACKS=describe", "lacks describe", framework.ErrInvalid},
		"cut before its end":    {"-DSIZE=offsetof(mscclpp_device_backend,describe)", "lacks describe", framework.ErrInvalid},
		"no data":               {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_DATA -DLACKS=alloc_data", "lacks alloc_data", framework.ErrInvalid},
		"older, with data":      {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_DATA -DSIZE=offsetof(mscclpp_device_backend,alloc_data)", "lacks alloc_data", framework.ErrInvalid},
		"older":                 {"-DSIZE=offsetof(mscclpp_device_backend,alloc_data)", "", nil},
		"no links":              {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_LINKS -DLACKS=link", "lacks link", framework.ErrInvalid},
		"older, with links":     {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_LINKS -DSIZE=offsetof(mscclpp_device_backend,link)", "lacks link", framework.ErrInvalid},
		"multicast alone":       {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_MULTICAST", "multicast needs shares", framework.ErrInvalid},
		"an unused group":       {"-DLACKS=capture_begin", "", nil},
		"events alone":          {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_EVENTS", "events need streams", framework.ErrInvalid},
		"times alone":           {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_TIMES", "need events", framework.ErrInvalid},
		"graphs alone":          {"-DCAPABILITIES=MSCCLPP_DEVICE_HAS_GRAPHS", "need streams", framework.ErrInvalid},
		"a type that is taken":  {`-DTYPE="cuda"`, `"cuda"`, framework.ErrInvalid},
		"a type with a colon":   {`-DTYPE="ac:me"`, `"ac:me"`, framework.ErrInvalid},
		"no type":               {"-DTYPE=0", "names no type", framework.ErrInvalid},
		"a stranger's share":    {`-DKIND="memfd"`, `kind of share "memfd"`, framework.ErrInvalid},
		"a share of the driver": {`-DKIND="vmm"`, "", nil},
		"a descriptor":          {`-DKIND="fd:acme"`, "", nil},
		"no table":              {"-DNO_TABLE", "returns no table", framework.ErrInvalid},
		"another symbol":        {"-DSYMBOL=other", "no function mscclpp_device_backend_v1", framework.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := loadFile(compiled(t, strings.Fields(c.define)...))
			switch {
			case c.class == nil && err != nil:
				t.Fatal(err)
			case c.class == nil:
				if n, err := b.Count(); n != 2 || err != nil || b.Type() != "acme" || b.Product() != "ACME 1" {
					t.Errorf("%d devices, %v, of type %q by %q", n, err, b.Type(), b.Product())
				}
			case !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want):
				t.Errorf("%v: expected %q", err, c.want)
			}
		})
	}
}

// A file that is no shared object for this processor never reaches the dynamic linker, which would crash on some of it.
func TestFilesThatAreRefused(t *testing.T) {
	good, err := os.ReadFile(compiled(t))
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int, value uint16) []byte {
		b := append([]byte(nil), good...)
		binary.LittleEndian.PutUint16(b[at:], value)
		return b
	}
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"nothing":        {nil, "not a shared object, or cut off"},
		"text":           {[]byte("#!/bin/sh\n"), "not a shared object"},
		"half a file":    {good[:len(good)/2], ""},
		"a quarter":      {good[:len(good)/4], ""},
		"another arch":   {changed(18, 183), "expected a shared object for"}, // EM_AARCH64
		"an executable":  {changed(16, 2), "expected a shared object for"},   // ET_EXEC
		"only a header":  {good[:64], ""},
		"a longer table": {changed(56, 0xffff), ""}, // of program headers
	} {
		path := filepath.Join(t.TempDir(), "file.so")
		if err := os.WriteFile(path, c.content, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := loadFile(path); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v: expected ErrInvalid with %q, and the path", name, err, c.want)
		}
	}
}

func TestErrorsHaveTheMakersWords(t *testing.T) {
	b, err := loadFile(compiled(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Open(1, "")
	const want = "acme:1 open: unavailable: acmeDo answers ACME_ERROR_TIRED (the device sleeps); the device is lost to this process, which has to be started again"
	if err == nil || err.Error() != want {
		t.Errorf("%v: expected %s", err, want)
	}
	var e *Error
	if !errors.As(err, &e) || !e.Lost() || e.Code != 42 {
		t.Errorf("the error is %#v", err)
	}
	for code, want := range map[string]error{
		"-3": framework.ErrInvalid, "-4": framework.ErrUnsupported, "-5": framework.ErrUnavailable, "-6": framework.ErrInvalid,
		"-7": framework.ErrUnavailable, "-8": framework.ErrUnavailable, "1234": framework.ErrInvalid, "-1234": framework.ErrInvalid,
	} {
		b, err := loadFile(compiled(t, "-DCODE=("+code+")"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Open(0, ""); !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), "acmeDo answers ") {
			t.Errorf("code %s: %v: expected %v", code, err, want)
		}
	}
}

// Files are the same object for the dynamic linker if they have the same path; descriptors are used again.
func TestLoadsAreIndependent(t *testing.T) {
	for _, typ := range []string{"one", "two", "three"} {
		b, err := loadFile(compiled(t, `-DTYPE="`+typ+`"`, `-DKIND="vmm"`))
		if err != nil || b.Type() != typ {
			t.Fatalf("%v: expected a table of type %s", err, typ)
		}
	}
}

func TestDependencies(t *testing.T) {
	f, err := os.Open(compiled(t, "-lm", "-Wl,--no-as-needed"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := Dependencies(f)
	if err != nil || !strings.Contains(strings.Join(libs, " "), "libc.so") {
		t.Errorf("%v, %v", libs, err)
	}
}
