package machinecode

import (
	"archive/zip"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Extension ends the name of a container.
const Extension = ".cubins"

const (
	manifestFile = "manifest.json"
	format       = 1

	mostManifest = 16 << 20 // bytes of a manifest
	mostCode     = 64 << 20 // bytes of the machine code of one image
)

// Manifest says what is in a container.
type Manifest struct {
	Format    int    `json:"format"`
	Chip      string `json:"chip"`      // "sm_90"
	Assembler string `json:"assembler"` // "ptxas 12.9.86"
	Images    []Code `json:"images"`
}

// Code is the machine code of one image.
type Code struct {
	ID      string         `json:"id"`     // of the image, for people
	PTX     string         `json:"ptx"`    // sha256 of the text that was assembled
	SHA256  string         `json:"sha256"` // of the machine code
	Bytes   int            `json:"bytes"`
	Kernels map[string]Use `json:"kernels"` // by entry point
}

// Use is what a kernel takes of a processor, with the functions that it calls.
type Use struct {
	Registers int `json:"registers"`       // of a thread
	Stack     int `json:"stack,omitempty"` // bytes of a thread: registers that were spilled, and arrays
}

// Bundle is a container to be written.
type Bundle struct {
	Chip      string
	Assembler string
	codes     []Code
	data      map[string][]byte // by PTX
}

// Add adds the machine code of an image. Equal texts are kept once.
func (b *Bundle) Add(id, ptx string, code []byte, kernels map[string]Use) error {
	a, err := parseArch(b.Chip)
	if err != nil {
		return err
	}
	object, err := Inspect(code)
	if err != nil {
		return fmt.Errorf("machine code of %s: %w", id, err)
	}
	if !object.matches(a) {
		return fmt.Errorf("%w: machine code of %s is for chip %d, expected %s", framework.ErrInvalid, id, object.Chip, b.Chip)
	}
	if b.data == nil {
		b.data = map[string][]byte{}
	}
	if b.data[ptx] == nil {
		b.codes = append(b.codes, Code{ID: id, PTX: ptx, SHA256: sum(code), Bytes: len(code), Kernels: kernels})
		b.data[ptx] = code
	}
	return nil
}

// Write writes the container. Equal contents give equal bytes.
func (b *Bundle) Write(w io.Writer) error {
	slices.SortFunc(b.codes, func(x, y Code) int { return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.PTX, y.PTX)) })
	text, err := json.Marshal(Manifest{Format: format, Chip: b.Chip, Assembler: b.Assembler, Images: b.codes})
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	add := func(name string, data []byte) error {
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	}
	if err := add(manifestFile, text); err != nil {
		return err
	}
	for _, c := range b.codes {
		if err := add(c.file(), b.data[c.PTX]); err != nil {
			return err
		}
	}
	return z.Close()
}

// file is the name of the code in the archive.
func (c *Code) file() string { return c.PTX + ".cubin" }

// container is a file of which the directory and the manifest were read.
type container struct {
	path     string
	manifest Manifest
	arch     arch
	members  map[string]span
}

// span is where the bytes of a member are in the file.
type span struct{ at, bytes int64 }

// open reads the directory and the manifest of a container.
func open(path string) (*container, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("machine code: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("machine code: %w", err)
	}
	c, err := parse(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("machine code %s: %w", path, err)
	}
	c.path = path
	return c, nil
}

func parse(f io.ReaderAt, size int64) (*container, error) {
	z, err := zip.NewReader(f, size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: expected what mscclpp-kernels assemble writes", framework.ErrInvalid, err)
	}
	c := &container{members: make(map[string]span, len(z.File))}
	for _, m := range z.File {
		at, err := m.DataOffset()
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", framework.ErrInvalid, m.Name, err)
		}
		if m.Method != zip.Store || m.UncompressedSize64 > uint64(size) {
			return nil, fmt.Errorf("%w: %s: expected it to be stored as it is", framework.ErrInvalid, m.Name)
		}
		c.members[m.Name] = span{at, int64(m.UncompressedSize64)}
	}
	text, err := c.member(f, manifestFile, mostManifest)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c.manifest); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", framework.ErrInvalid, manifestFile, err)
	}
	if c.manifest.Format != format {
		return nil, fmt.Errorf("%w: %s: format %d, expected %d", framework.ErrInvalid, manifestFile, c.manifest.Format, format)
	}
	c.arch, err = parseArch(c.manifest.Chip)
	return c, err
}

func (c *container) member(f io.ReaderAt, name string, most int64) ([]byte, error) {
	m, ok := c.members[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s is missing", framework.ErrInvalid, name)
	}
	if m.bytes > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, expected at most %d", framework.ErrInvalid, name, m.bytes, most)
	}
	data := make([]byte, m.bytes)
	if _, err := f.ReadAt(data, m.at); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", framework.ErrInvalid, name, err)
	}
	return data, nil
}

// code reads and checks the machine code of an image.
func (c *container) code(entry *Code) ([]byte, error) {
	f, err := os.Open(c.path) // again: a process that lives for weeks keeps no descriptor for it
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := c.member(f, entry.file(), mostCode)
	if err != nil {
		return nil, err
	}
	if got := sum(data); got != entry.SHA256 {
		return nil, fmt.Errorf("%w: machine code of %s has sha256 %s, its manifest says %s", framework.ErrInvalid, entry.ID, got, entry.SHA256)
	}
	object, err := Inspect(data)
	if err != nil {
		return nil, err
	}
	if !object.matches(c.arch) {
		return nil, fmt.Errorf("%w: machine code of %s is for chip %d, its manifest says %s", framework.ErrInvalid, entry.ID, object.Chip, c.manifest.Chip)
	}
	return data, nil
}

// chipOf returns the chip in the name of a container, "" if it is none.
func chipOf(path string) string {
	name, ok := strings.CutSuffix(path, Extension)
	at := strings.LastIndex(name, "-")
	if !ok || at < 0 {
		return ""
	}
	return name[at+1:]
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
